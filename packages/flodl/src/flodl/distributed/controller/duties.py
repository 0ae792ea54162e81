"""What one member does for all: who it is, what is due, and what happens when it fails."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flodl.distributed.controller.settings import DutyRules
from flodl.distributed.protocol.messages import CallbackDone, CallbackKind, CheckpointMode
from flodl.distributed.protocol.values import FileEntry, Plain

MOST_ATTEMPTS = 3
FAILURES_TO_REPLACE = 2
SMOOTHING = 0.3


def elect(
    members: Sequence[str], speeds: Mapping[str, float | None], current: str | None
) -> str | None:
    """Return the member that does duties: the fastest, and then the same one as long as it can.

    Args:
        members: Those that may be chosen, by rank.
        speeds: Smoothed milliseconds of each; ``None`` while unknown.
        current: Who did it so far.
    """
    if current in members:
        return current
    if not members:
        return None
    return min(members, key=lambda uid: _or_inf(speeds.get(uid)))


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


@dataclass(kw_only=True, slots=True)
class Duty:
    """One callback, perhaps in several parts, until all of them are done."""

    kind: CallbackKind
    epoch: int
    version: int
    reason: str = "checkpoint"
    stem: str = ""
    mode: CheckpointMode = "full"
    parts: int = 1
    attempt: int = 1
    lead: int = 0
    """The part of the member that was elected."""
    meta: dict[str, Plain] = field(default_factory=dict)
    """What the controller contributes to a checkpoint, as it was when that was begun."""
    is_sealing: bool = False
    """Whether all members have written their parts, which are only to be made one."""
    files: tuple[FileEntry, ...] = ()
    """Those parts."""
    running: dict[int, str] = field(default_factory=dict)
    """Who works on which part."""
    done: dict[int, CallbackDone] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Members that could not do it."""

    @property
    def is_done(self) -> bool:
        """Whether every part has a result."""
        return len(self.done) == self.parts

    @property
    def is_joint(self) -> bool:
        """Whether all members write parts of it."""
        return self.kind == "checkpoint" and self.mode != "full" and bool(self.stem)

    @property
    def step(self) -> CallbackKind:
        """What members do for it now."""
        return "seal" if self.is_sealing else self.kind

    @property
    def draft(self) -> str:
        """Name of this attempt."""
        return f"{self.version}-{self.attempt}"

    def values(self) -> dict[str, float]:
        """Return the means over all parts, weighted by their samples."""
        parts = [item for item in self.done.values() if item.value is not None]
        names = sorted({name for item in parts for name in item.value or {}})
        return {name: _mean_of(name, parts) for name in names}

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes: what is left to do of it."""
        return {
            "kind": self.kind,
            "epoch": self.epoch,
            "version": self.version,
            "reason": self.reason,
            "stem": self.stem,
            "mode": self.mode,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Duty:
        """Return the duty that ``to_state`` described, to be done from its start."""
        return cls(**state)


def _mean_of(name: str, parts: Sequence[CallbackDone]) -> float:
    known = [
        (item.value[name], item.samples) for item in parts if item.value and name in item.value
    ]
    weight = sum(samples for _, samples in known)
    if weight == 0:
        return math.fsum(value for value, _ in known) / len(known)
    return math.fsum(value * samples for value, samples in known) / weight


def due_after_epoch(rules: DutyRules, epoch: int, version: int, *, is_last: bool) -> list[Duty]:
    """Return what is due when an epoch has ended, evaluation first."""
    found = []
    if rules.eval_every is not None and (is_last or (epoch + 1) % rules.eval_every == 0):
        found.append(Duty(kind="eval", epoch=epoch, version=version))
    every = rules.checkpoint_every
    if epoch + 1 in rules.checkpoint_at_epochs or (every and (epoch + 1) % every == 0):
        found += _checkpoints(rules, epoch, version, f"epoch{epoch}")
    return found


def due_after_window(rules: DutyRules, epoch: int, version: int) -> list[Duty]:
    """Return what is due when a window was committed."""
    every = rules.checkpoint_every_windows
    if every is None or version % every:
        return []
    return _checkpoints(rules, epoch, version, f"window{version}")


def _checkpoints(rules: DutyRules, epoch: int, version: int, number: str) -> list[Duty]:
    """Return the checkpoint of that number, where it is saved or the user has a function for it."""
    if rules.save_path is None and not rules.has_checkpoint_fn:
        return []
    stem = "" if rules.save_path is None else f"{rules.save_path}-{number}"
    mode = rules.checkpoint_mode
    return [Duty(kind="checkpoint", epoch=epoch, version=version, stem=stem, mode=mode)]


@dataclass(kw_only=True, slots=True)
class DutyDesk:
    """Duties that wait and run, the member that does them, and how long they take."""

    elected: str | None = None
    failures: int = 0
    """Of the elected member, in a row."""
    waiting: list[Duty] = field(default_factory=list)
    running: list[Duty] = field(default_factory=list)
    expected_ms: dict[str, float] = field(default_factory=dict)
    """Smoothed duration by kind."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self.waiting and not self.running

    @property
    def busy(self) -> set[str]:
        """Members that work on something."""
        return {uid for duty in self.running for uid in duty.running.values()}

    def find(self, done: CallbackDone) -> Duty | None:
        """Return the running duty that a result belongs to."""
        wanted = (done.kind, done.epoch, done.attempt, done.stem)
        for duty in self.running:
            if (duty.step, duty.epoch, duty.attempt, duty.stem) == wanted:
                return duty
        return None

    def took(self, kind: str, ms: float) -> None:
        """Remember how long a callback took."""
        before = self.expected_ms.get(kind, ms)
        self.expected_ms[kind] = before + SMOOTHING * (ms - before)

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "elected": self.elected,
            "waiting": [duty.to_state() for duty in (*self.running, *self.waiting)],
            "expected_ms": dict(self.expected_ms),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> DutyDesk:
        """Return the desk that ``to_state`` described; what ran is to be run again."""
        return cls(
            elected=state["elected"],
            waiting=[Duty.from_state(item) for item in state["waiting"]],
            expected_ms=dict(state["expected_ms"]),
        )


def abandon(desk: DutyDesk, uid: str) -> list[Duty]:
    """Take a lost member off its duties; return those that were tried often enough.

    The others are to be done again.
    """
    if desk.elected == uid:
        desk.elected, desk.failures = None, 0
    hit = [duty for duty in desk.running if uid in duty.running.values()]
    for duty in hit:
        desk.running.remove(duty)
        if duty.attempt < MOST_ATTEMPTS:
            desk.waiting.insert(0, again(duty, uid))
    return [duty for duty in hit if duty.attempt >= MOST_ATTEMPTS]


def again(duty: Duty, failed: str) -> Duty:
    """Return the next attempt at a duty, in one piece and from the start."""
    return dataclasses.replace(
        duty,
        attempt=duty.attempt + 1,
        parts=1,
        running={},
        done={},
        meta={},
        is_sealing=False,
        files=(),
        failed=[*duty.failed, failed],
    )
