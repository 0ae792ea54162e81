"""How far ahead a rank may run: of the slowest one, and while an average is being made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flodl.distributed.config import Verdict, VerdictKind

OVERSHOOT_CEILING = 15


def throttled(steps: Mapping[str, int], has_work: Mapping[str, bool], most: int) -> set[str]:
    """Return the members that must wait: more than ``most`` steps ahead of the slowest.

    Members without work are no measure: waiting for them would never end.

    Args:
        steps: Steps of each member since the last average.
        has_work: Whether each has, or may get, something to train.
        most: Steps that a member may be ahead.
    """
    working = [count for member, count in steps.items() if has_work.get(member, False)]
    if not working:
        return set()
    limit = min(working) + most
    return {member for member, count in steps.items() if count > limit}


def clamp(value: int, low: int, high: int) -> int:
    """Return the nearest value within ``[low, high]``."""
    return max(low, min(value, high))


@dataclass(kw_only=True, slots=True)
class Overshoot:
    """Batches past its count that a rank may take while an average is made (cpu_async)."""

    epoch_batches: int
    fixed: int | None = None
    """What the user set; it never changes then."""
    grown: int = 0
    """Batches won by stable windows."""

    @property
    def value(self) -> int:
        """Batches allowed now."""
        if self.fixed is not None:
            return self.fixed
        start = clamp(self.epoch_batches // 100, 2, 5)
        most = clamp(self.epoch_batches // 50, 3, 10)
        return min(start + self.grown, most, OVERSHOOT_CEILING)

    def apply(self, verdict: Verdict) -> None:
        """Grow by one after a stable window; start again after a nudge."""
        if verdict.kind is VerdictKind.STABLE:
            self.grown = min(self.grown + 1, OVERSHOOT_CEILING)
        elif verdict.kind is VerdictKind.NUDGE_DOWN:
            self.grown = 0
