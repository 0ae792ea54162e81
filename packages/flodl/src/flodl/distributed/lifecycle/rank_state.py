"""What a rank is at one moment: plain state that the steps of its machine work on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flodl.distributed.config.modes import Payload
from flodl.distributed.lifecycle.rank_events import AbandonReduce, RankCommand, Send
from flodl.distributed.lifecycle.work import WorkInHand
from flodl.distributed.protocol import schema
from flodl.distributed.protocol.messages import Message, RunCallback, StateSync
from flodl.distributed.protocol.values import Ranges, Target, Trained


class RankState(StrEnum):
    """How far a rank has come."""

    BOOT = "boot"
    BUILDING = "building"
    SYNCING = "syncing"
    """Built; waits for a generation, forms it, or takes over state."""
    READY = "ready"
    TRAINING = "training"
    BARRIER = "barrier"
    REDUCING = "reducing"
    QUIESCED = "quiesced"
    ORPHANED = "orphaned"
    """It stands still, as its work may have been given to others."""
    DRAINING = "draining"
    """It has said goodbye and ends by itself."""
    EXITED = "exited"


class Activity(StrEnum):
    """What a rank does while training."""

    RUN = "run"
    THROTTLED = "throttled"
    CALLBACK = "callback"
    IDLE = "idle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A window report that waits for what only the worker can measure."""

    window: int
    payload: Payload
    trained: tuple[Trained, ...]
    steps: int
    samples: int
    wall_ms: float
    delivered_ms: float | None
    fill_ms: float
    left_out: Ranges = ()


@dataclass(kw_only=True, slots=True)
class Rank:
    """State of one rank, and the commands that its current step has given so far."""

    uid: str
    incarnation: int
    grace: float
    """Seconds to wait for a lost controller."""
    state: RankState = RankState.BOOT
    gen: int = 0
    version: int = 0
    """Last window whose result it took over."""
    window: int = 0
    payload: Payload = "params"
    target: Target | None = None
    work: WorkInHand = field(default_factory=WorkInHand)
    is_throttled: bool = False
    is_leader: bool = False
    is_averaging: bool = False
    """Whether it has come to the barrier of the open window."""
    is_reducing: bool = False
    callback: RunCallback | None = None
    lost_at: float | None = None
    """When the controller was lost; ``None`` while it is there."""
    draft: Draft | None = None
    syncing: StateSync | None = None
    reported_at: float = 0.0
    reported_steps: int = 0
    commands: list[RankCommand] = field(default_factory=list)

    @property
    def activity(self) -> Activity:
        """What it does while training."""
        if self.callback is not None:
            return Activity.CALLBACK
        if self.is_throttled:
            return Activity.THROTTLED
        return Activity.RUN if self._has_step() else Activity.IDLE

    def _has_step(self) -> bool:
        """Return whether there is a step to take before the window's end, or past it."""
        target, tally = self.target, self.work.tally
        if target is None:
            return False
        if self.is_averaging:
            is_ahead = tally.steps >= target.overshoot
            return self.payload == "snapshot" and self.work.has_work and not is_ahead
        if self.payload == "grads":
            return tally.steps < (target.steps or 0)
        return self.work.has_work

    def emit(self, command: RankCommand) -> None:
        """Add a command to what the current step gives."""
        self.commands.append(command)

    def send(self, message: Message) -> None:
        """Send a message to the controller."""
        self.commands.append(Send(message=message, gen=self.gen))

    def stop_averaging(self) -> None:
        """Give up the open window; what was to be averaged waits for another one."""
        if self.is_reducing:
            self.emit(AbandonReduce(window=self.window))
        self.is_averaging = self.is_reducing = self.is_throttled = False
        self.draft, self.target = None, None
        self.work.void()

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        plain = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _COMPOUND
        }
        return {
            **plain,
            "state": self.state.value,
            "work": self.work.to_state(),
            "target": None if self.target is None else schema.write(self.target),
            "callback": None if self.callback is None else schema.write(self.callback),
            "syncing": None if self.syncing is None else schema.write(self.syncing),
            "draft": None if self.draft is None else schema.write(self.draft),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Rank:
        """Return the rank that ``to_state`` described."""
        compound = {
            name: None if state[name] is None else schema.read(kind, state[name])
            for name, kind in _READ.items()
        }
        return cls(
            **{
                **state,
                **compound,
                "state": RankState(state["state"]),
                "work": WorkInHand.from_state(state["work"]),
            }
        )


_COMPOUND = {"state", "work", "target", "callback", "syncing", "draft", "commands"}
_READ: dict[str, type[Any]] = {
    "target": Target,
    "callback": RunCallback,
    "syncing": StateSync,
    "draft": Draft,
}
