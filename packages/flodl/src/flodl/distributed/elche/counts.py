"""How many batches each rank gets in a window whose slowest rank gets ``anchor``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flodl.distributed.elche.partition import cap_total, round_half_up
from flodl.distributed.elche.speed import Speed

SPEED_RATIO_LIMIT = 64.0
DEAD_ZONE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """What a window is made from."""

    anchor: int
    slow_ms: float
    """Time of one batch of the anchor's rank."""
    speeds: Mapping[str, Speed]

    def count(self, member: str) -> int:
        """Return the batches that fill the window's time; unmeasured members get the anchor."""
        ms = self.speeds[member].ms
        if ms is None:
            return self.anchor
        ratio = min(self.slow_ms / ms, SPEED_RATIO_LIMIT)
        return max(1, round_half_up(self.anchor * ratio))


@dataclass(kw_only=True, slots=True)
class BatchCounts:
    """Batches of each member, changed only where a change is worth it."""

    wanted: dict[str, int]
    """Before the epoch's cap."""
    most_change: int | None = None
    """Batches by which a calibrated count moves at most in one update."""
    epoch_batches: int | None = None
    """No window is longer than the epoch."""
    calibrated: set[str] = field(default_factory=set)
    """Members whose count was made from a measurement of their own."""
    slack_ms: dict[str, float] = field(default_factory=dict)
    """What members have to do besides, in the next window only."""

    def update(self, pace: Pace, *, forced: bool) -> None:
        """Make the counts anew.

        A change within 5 % of the current count is left out, unless it is ``forced`` or the
        member's first measurement.
        """
        for member, current in self.wanted.items():
            count = pace.count(member)
            if member not in self.calibrated:
                if pace.speeds[member].is_measured:
                    self.calibrated.add(member)
                self.wanted[member] = count
            elif forced or abs(count - current) > DEAD_ZONE * current:
                self.wanted[member] = self._limited(count, current)

    def _limited(self, count: int, current: int) -> int:
        limit = self.most_change
        if limit is None:
            return count
        return min(max(count, current - limit), current + limit)

    def change_members(self, members: Sequence[str], anchor: int) -> None:
        """Keep the counts of those who stay; newcomers start with the anchor."""
        self.wanted = {member: self.wanted.get(member, anchor) for member in members}
        self.calibrated &= set(members)
        self.slack_ms.clear()

    @property
    def is_cap_binding(self) -> bool:
        """Whether the epoch is too short for the window that speeds ask for."""
        return self.epoch_batches is not None and sum(self.wanted.values()) > self.epoch_batches

    def planned(self, speeds: Mapping[str, Speed]) -> list[int]:
        """Return the counts of the next window, within the epoch and less what slack takes."""
        counts = list(self.wanted.values())
        if self.epoch_batches is not None:
            counts, _ = cap_total(counts, self.epoch_batches)
        if not self.slack_ms:
            return counts
        return [
            self._less_slack(member, count, speeds[member].ms)
            for member, count in zip(self.wanted, counts, strict=True)
        ]

    def _less_slack(self, member: str, count: int, ms: float | None) -> int:
        slack = self.slack_ms.get(member, 0.0)
        return count if ms is None else max(1, count - math.ceil(slack / ms))
