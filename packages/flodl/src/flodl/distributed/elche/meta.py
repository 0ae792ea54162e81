"""The meta-controller: shrinks the window when the learning rate drops or divergence persists."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flodl.distributed.config import Verdict, VerdictKind, nudge_down
from flodl.distributed.elche.growth import Phase

LR_WINDOW = 3
ANCHOR_WINDOW = 5
VERDICT_WINDOW = 5
LR_CLIFF = 0.3
LR_CLIFF_BASE = 0.5
LEAST_FACTOR, MOST_FACTOR = 0.1, 0.95
SETTLED = 0.10


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How many windows in a row must go wrong in a phase, and what happens then."""

    windows: int
    base: float


SUSTAINED = {
    Phase.WARMUP: Patience(windows=5, base=0.3),
    Phase.STABLE: Patience(windows=3, base=0.5),
    Phase.MATURE: Patience(windows=2, base=0.7),
}


def trend(anchors: Sequence[int]) -> float:
    """Return how far the last anchor lies from the mean of all, as a part of the mean."""
    mean = math.fsum(anchors) / len(anchors)
    return (anchors[-1] - mean) / mean


def shrink_factor(base: float, anchors: Sequence[int]) -> float:
    """Return ``base - (1 - base) * trend`` within bounds: a window that grew shrinks more."""
    return _bounded(base - (1 - base) * trend(anchors))


def _bounded(factor: float) -> float:
    return min(max(factor, LEAST_FACTOR), MOST_FACTOR)


@dataclass(kw_only=True, slots=True)
class MetaController:
    """Looks over the guard's shoulder, one ``observe`` a window."""

    rates: deque[float] = field(default_factory=lambda: deque(maxlen=LR_WINDOW))
    anchors: deque[int] = field(default_factory=lambda: deque(maxlen=ANCHOR_WINDOW))
    troubled: deque[bool] = field(default_factory=lambda: deque(maxlen=VERDICT_WINDOW))
    """Of the last windows: whether the guard found something wrong."""

    def observe(self, lr: float | None, anchor: int, verdict: Verdict, phase: Phase) -> Verdict:
        """Return the verdict of both: a nudge of either, then the guard's own.

        Args:
            lr: Learning rate of the window, where known.
            anchor: Anchor of the window.
            verdict: The guard's.
            phase: Nothing happens while probing.
        """
        if lr is not None:
            self.rates.append(lr)
        self.anchors.append(anchor)
        self.troubled.append(verdict.kind is not VerdictKind.STABLE)
        bases = [*self._cliff(lr is not None), *self._sustained(phase)]
        if phase is Phase.PROBE or not bases:
            return verdict
        factor = _bounded(math.prod(shrink_factor(base, self.anchors) for base in bases))
        if verdict.kind is VerdictKind.NUDGE_DOWN and math.isfinite(verdict.factor):
            factor = min(factor, verdict.factor)
        return nudge_down(factor)

    def _cliff(self, is_new: bool) -> list[float]:
        if not is_new or len(self.rates) < 2 or self.rates[-2] <= 0:
            return []
        drop = (self.rates[-2] - self.rates[-1]) / self.rates[-2]
        return [LR_CLIFF_BASE] if drop > LR_CLIFF else []

    def _sustained(self, phase: Phase) -> list[float]:
        patience = SUSTAINED.get(phase)
        if patience is None or len(self.troubled) < patience.windows:
            return []
        return [patience.base] if all(list(self.troubled)[-patience.windows :]) else []

    def is_settled(self) -> bool:
        """Return whether the anchor no longer moves."""
        return bool(self.anchors) and abs(trend(self.anchors)) < SETTLED

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "rates": list(self.rates),
            "anchors": list(self.anchors),
            "troubled": list(self.troubled),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> MetaController:
        """Return the controller that ``to_state`` described."""
        meta = cls()
        meta.rates.extend(state["rates"])
        meta.anchors.extend(state["anchors"])
        meta.troubled.extend(state["troubled"])
        return meta
