"""What happens to a run, as the controller hears of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from flodl.distributed.protocol.messages import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class FromHost:
    """A host's daemon sent a message of its own."""

    host: str
    gen: int
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class FromMember:
    """A rank sent a message."""

    uid: str
    gen: int
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLinkLost:
    """A host's socket closed; its silence counts from its last message."""

    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRequested:
    """Someone asked that the run starts (``fdl start``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequested:
    """Someone asked that the run ends in good order."""

    save: bool = True
    reason: str = "graceful_shutdown"


@dataclass(frozen=True, kw_only=True, slots=True)
class AbortRequested:
    """Someone asked that the run ends at once."""

    reason: str = "aborted"


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherLost:
    """The launcher's pipe closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherBack:
    """A launcher attached again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """Time has passed; sent at ``next_deadline`` at the latest."""


Event: TypeAlias = (
    FromHost
    | FromMember
    | HostLinkLost
    | StartRequested
    | StopRequested
    | AbortRequested
    | LauncherLost
    | LauncherBack
    | Tick
)
