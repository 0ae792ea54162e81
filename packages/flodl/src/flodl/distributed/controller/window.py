"""One window: from the first batch after an average to the next average."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from flodl.distributed.config.modes import Payload
from flodl.distributed.protocol import schema
from flodl.distributed.protocol.messages import AtBarrier, Reduced, WindowReport
from flodl.distributed.protocol.values import Target

T = TypeVar("T")


class WindowState(StrEnum):
    """How far a window has come."""

    OPEN = "open"
    """Ranks train."""
    CLOSING = "closing"
    """Some ranks are at the barrier, or all were told to come."""
    REDUCING = "reducing"
    """Everyone was at the barrier; the collective runs."""
    COMMITTED = "committed"
    VOID = "void"
    """Nobody completed the collective: its work counts with a later window."""


@dataclass(kw_only=True, slots=True)
class Window:
    """What is known of one window; members are those of its generation."""

    number: int
    members: tuple[str, ...]
    payload: Payload
    opened_at: float
    state: WindowState = WindowState.OPEN
    targets: dict[str, Target] = field(default_factory=dict)
    reports: dict[str, WindowReport] = field(default_factory=dict)
    arrived: dict[str, AtBarrier] = field(default_factory=dict)
    reduced: dict[str, Reduced] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    """Members whose payload was not finite."""
    late: tuple[str, ...] = ()
    """Members that were not waited for; what they trained counts for a later window."""
    ahead: set[str] = field(default_factory=set)
    """Members that were at the barrier and train on until all others are there."""
    reduce_at: float = 0.0
    """When the collective was started."""

    @property
    def is_complete(self) -> bool:
        """Whether every member is at the barrier."""
        return len(self.arrived) == len(self.members)

    @property
    def is_reduced(self) -> bool:
        """Whether every member has the result."""
        return len(self.reduced) == len(self.members)

    @property
    def missing(self) -> list[str]:
        """Members that are not where the window waits for them."""
        there = self.reduced if self.state is WindowState.REDUCING else self.arrived
        return [uid for uid in self.members if uid not in there and uid not in self.ahead]

    def completed_by_one_of(self, uids: Collection[str]) -> bool:
        """Whether one of these members is known to have the result."""
        return any(done.ok for uid, done in self.reduced.items() if uid in uids)

    def samples(self, uid: str) -> int:
        """Return the samples that a member brings to the average."""
        arrived = self.arrived.get(uid)
        return 0 if arrived is None or uid in self.late else arrived.samples

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "number": self.number,
            "members": list(self.members),
            "payload": self.payload,
            "opened_at": self.opened_at,
            "state": self.state.value,
            "targets": {uid: dataclasses.asdict(item) for uid, item in self.targets.items()},
            "reports": {uid: schema.write(item) for uid, item in self.reports.items()},
            "arrived": {uid: schema.write(item) for uid, item in self.arrived.items()},
            "reduced": {uid: schema.write(item) for uid, item in self.reduced.items()},
            "excluded": list(self.excluded),
            "late": list(self.late),
            "ahead": sorted(self.ahead),
            "reduce_at": self.reduce_at,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Window:
        """Return the window that ``to_state`` described."""
        plain = {"number", "payload", "opened_at", "reduce_at"}
        return cls(
            members=tuple(state["members"]),
            state=WindowState(state["state"]),
            targets={uid: Target(**item) for uid, item in state["targets"].items()},
            reports=_read(WindowReport, state["reports"]),
            arrived=_read(AtBarrier, state["arrived"]),
            reduced=_read(Reduced, state["reduced"]),
            excluded=tuple(state["excluded"]),
            late=tuple(state.get("late", ())),
            ahead=set(state.get("ahead", ())),
            **{name: state[name] for name in plain},
        )


def _read(kind: type[T], items: dict[str, Any]) -> dict[str, T]:
    return {uid: schema.read(kind, item) for uid, item in items.items()}
