"""What the controller's server needs of others: a core that decides, a port, an audience."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.controller.commands import Command
from flodl.distributed.controller.events import Event
from flodl.distributed.protocol.messages import (
    AlertRaised,
    CallbackDone,
    LogLine,
    Nack,
    Reduced,
    TelemetryRecord,
)
from flodl.distributed.serving.desk import Note

Heard: TypeAlias = TelemetryRecord | AlertRaised | LogLine | CallbackDone | Reduced | Nack
"""What people may want to know of what a rank sends."""


class Core(Protocol):
    """What decides: the pure controller, or a double of it."""

    def handle(self, event: Event, now: float) -> Sequence[Command]:
        """Return what is to be done about an event."""

    def next_deadline(self) -> float | None:
        """Return the time at which ``Tick`` is due at the latest."""

    def to_state(self) -> dict[str, Any]:
        """Return all that another process needs to go on from here, in plain values."""


class Audience(Protocol):
    """What is done with a run's numbers; called in the core's thread, one at a time."""

    def take(self, command: Command) -> None:
        """Publish what a command holds; commands that mean nothing to it are passed over."""

    def direct(self, note: Note) -> None:
        """Take a note of the launcher that the server itself does not know."""

    def hear(self, uid: str, message: Heard) -> None:
        """Take what a rank tells people of itself; decisions do not depend on it."""


class NoAudience:
    """An audience that nobody sits in."""

    def take(self, command: Command) -> None:
        """Do nothing."""

    def direct(self, note: Note) -> None:
        """Do nothing."""

    def hear(self, uid: str, message: Heard) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """What the controller's rim needs besides its core."""

    place: RunPlace
    token: str
    timeouts: Timeouts = field(default_factory=Timeouts)
    bound_to: str = "127.0.0.1"
    death_stem: str | None = None
    """Death files are ``<stem>.rank<N>.death.json``; ``None``: ``run`` in the run's folder."""
    is_encrypted: bool = False
    launcher_is_expected: bool = True
    """Whether a result is kept for a launcher that has not come for it yet."""


class Door(Protocol):
    """The one port of the controller while it is open."""

    def stop(self) -> None:
        """Close it."""
