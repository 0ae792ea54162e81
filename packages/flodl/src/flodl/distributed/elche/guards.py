"""Guards of convergence that look at how divergence develops: none at all, and its trend."""

from __future__ import annotations

import math
from typing import final

from flodl.core.errors import ConfigError
from flodl.distributed.config import (
    STABLE,
    SUPPRESS_GROWTH,
    ConvergenceGuard,
    DivergenceReport,
    ElCheConfig,
    Verdict,
)
from flodl.distributed.config.guard import GuardState

RING = 5
RISING = 3
DEFAULT_THRESHOLD = 0.05
BLENDED_THRESHOLD = 0.3


@final
class NoGuard:
    """Finds every window stable."""

    def report(self, report: DivergenceReport, k_used: int, k_max: int) -> Verdict:  # noqa: ARG002
        """Return that the window was stable."""
        return STABLE

    def state(self) -> GuardState:
        """Return nothing: there is no memory."""
        return {}

    def load(self, state: GuardState) -> None:
        """Take nothing over."""

    def telemetry(self) -> dict[str, float]:
        """Return no numbers."""
        return {}

    def reset(self) -> None:
        """Forget nothing."""


@final
class TrendGuard:
    """Suppresses growth while divergence rises three times in a row and is large.

    Args:
        threshold: Divergence from which a rise matters.

    Raises:
        ConfigError: The threshold is not a positive number.
    """

    def __init__(self, threshold: float = DEFAULT_THRESHOLD) -> None:
        if not (math.isfinite(threshold) and threshold > 0):
            raise ConfigError(f"TrendGuard threshold={threshold!r}: must be a positive number")
        self.threshold = threshold
        self._ring: list[float] = []

    def report(self, report: DivergenceReport, k_used: int, k_max: int) -> Verdict:  # noqa: ARG002
        """Return the verdict on a window."""
        self._ring = [*self._ring, report.divergence][-RING:]
        last = self._ring[-RISING:]
        is_rising = len(last) == RISING and last == sorted(set(last))
        return SUPPRESS_GROWTH if is_rising and last[-1] > self.threshold else STABLE

    def state(self) -> GuardState:
        """Return the last divergences."""
        return {"ring": list(self._ring)}

    def load(self, state: GuardState) -> None:
        """Take over what ``state`` returned."""
        ring = state["ring"]
        assert isinstance(ring, list)
        self._ring = list(ring)

    def telemetry(self) -> dict[str, float]:
        """Return the last divergence."""
        return {"trend_divergence": self._ring[-1]} if self._ring else {}

    def reset(self) -> None:
        """Forget every window seen so far."""
        self._ring.clear()


def guard_of(config: ElCheConfig) -> ConvergenceGuard:
    """Return the guard that a configuration asks for; none is needed where ranks never drift."""
    if config.mode.is_sync:
        return NoGuard()
    if config.convergence_guard is not None:
        return config.convergence_guard
    default = DEFAULT_THRESHOLD if config.alpha is None else BLENDED_THRESHOLD
    return TrendGuard(config.divergence_threshold or default)
