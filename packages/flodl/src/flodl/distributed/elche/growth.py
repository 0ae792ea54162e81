"""When a longer window is proposed, and when proposing is allowed again after a warning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

TARGET_LOW, TARGET_HIGH = 0.01, 0.50
WARMUP_MARGIN = 2.0
STEP_CAP = 2.0
REARM_AFTER = 5


class Phase(IntEnum):
    """How much a calibration is worth; it only ever rises."""

    PROBE = 0
    WARMUP = 1
    STABLE = 2
    MATURE = 3

    @classmethod
    def after(cls, reports: int) -> Phase:
        """Return the phase after so many reports."""
        return max(phase for phase, least in _PHASE_STARTS.items() if reports >= least)


_PHASE_STARTS = {Phase.PROBE: 0, Phase.WARMUP: 1, Phase.STABLE: 5, Phase.MATURE: 20}


@dataclass(frozen=True, kw_only=True, slots=True)
class GrowthRule:
    """Bounds within which the anchor is tuned."""

    target: float
    """Share of a window that averaging may take."""
    least: int
    most: int
    decays: bool = False

    def propose(self, anchor: int, slow_ms: float, fixed_ms: float, phase: Phase) -> int | None:
        """Return another anchor, or ``None`` to keep this one.

        ``overhead = fixed / (anchor * slow + fixed)``; above the target the anchor grows by their
        ratio, to ``least`` or more, and is at most doubled.

        Args:
            anchor: Batches of the slowest rank in a window.
            slow_ms: Its time for one.
            fixed_ms: What a window costs however long it is.
            phase: During warm-up the target is doubled.
        """
        target = min(max(self.target, TARGET_LOW), TARGET_HIGH)
        overhead = fixed_ms / (anchor * slow_ms + fixed_ms)
        limit = target * WARMUP_MARGIN if phase is Phase.WARMUP else target
        if overhead > limit:
            grown = math.ceil(anchor * min(overhead / target, STEP_CAP))
            # a guard may have brought it below the least: it comes back there by steps as well
            least = min(self.least, math.ceil(anchor * STEP_CAP))
            proposal = min(max(grown, least), self.most)
            return proposal if proposal > anchor else None
        if self.decays and overhead < target / 2 and anchor > self.least:
            return anchor - 1
        return None


@dataclass(kw_only=True, slots=True)
class GrowthLatch:
    """Whether growth may be proposed: off after a warning, on again after stable windows."""

    is_armed: bool = True
    stable: int = 0

    def disarm(self) -> None:
        """Allow no growth until enough windows in a row were stable."""
        self.is_armed = False
        self.stable = 0

    def count_stable(self) -> None:
        """Count a stable window."""
        self.stable += 1
        if self.stable >= REARM_AFTER:
            self.is_armed = True
