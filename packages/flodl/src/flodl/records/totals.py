"""Sums over a stretch of a rank's work, from which the record of that stretch is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

NONFINITE = ("nan", "inf", "-inf")

KeySums = Mapping[str, tuple[float, int]]


@dataclass(slots=True)
class WorkTotals:
    """Sums and counts by key over some work. A key that was not measured is absent."""

    work: float = 0
    """Samples."""
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Sum and number of the finite values of each key."""
    key_work: dict[str, float] = field(default_factory=dict)
    """Samples behind each key."""
    nonfinite: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each key was not finite, and how."""
    timing: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Sum weighted by work, and that work, of times in milliseconds."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not (self.work or self.sums or self.nonfinite)

    def add(self, sums: KeySums, work: float, timing: Mapping[str, float]) -> None:
        """Add what some work amounted to; a sum that is not finite is told of, not added."""
        self.work += work
        for key, (total, count) in sums.items():
            if math.isfinite(total):
                self._add_key(key, total, count, work)
            else:
                self._add_nonfinite(key, {str(float(total)): 1})
        for name, value in timing.items():
            if math.isfinite(value):
                before, weight = self.timing.get(name, (0.0, 0.0))
                self.timing[name] = (before + value * work, weight + work)

    def add_nonfinite(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add how often keys were not finite."""
        for key, kinds in counts.items():
            self._add_nonfinite(key, kinds)

    def means(self) -> dict[str, float]:
        """Return the mean of each key over its values, and of each time over the work."""
        means = {key: total / count for key, (total, count) in self.sums.items() if count}
        means.update((name, total / w) for name, (total, w) in self.timing.items() if w)
        return means

    def kwork(self) -> dict[str, float]:
        """Return the samples behind single keys, where they differ from the work."""
        return {key: work for key, work in self.key_work.items() if work != self.work}

    def _add_key(self, key: str, total: float, count: int, work: float) -> None:
        before, times = self.sums.get(key, (0.0, 0))
        self.sums[key] = (before + total, times + count)
        self.key_work[key] = self.key_work.get(key, 0) + work

    def _add_nonfinite(self, key: str, kinds: Mapping[str, int]) -> None:
        held = self.nonfinite.setdefault(key, {})
        for kind, count in kinds.items():
            held[kind] = held.get(kind, 0) + count
