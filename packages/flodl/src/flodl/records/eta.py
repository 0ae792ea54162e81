"""How long the rest of a run will take, judged by its recent epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

_WINDOW_CAP = 50
_REGIME_FACTOR = 1.5
_REGIME_EPOCHS = 3


class EtaEstimator:
    """Estimates the remaining time from a window of recent epochs.

    Each epoch weighs what it took on the clock, evaluation and checkpoints included. The first
    one, which often holds compilation and warm-up, leaves the window as soon as there is a second.
    Three epochs in a row that all differ from the window's median by half start a new regime,
    and the estimate follows it at once; the median keeps a periodic evaluation from looking like
    one.

    Args:
        total: Number of epochs of the run.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        """May grow while the run goes on."""
        self._walls: list[float] = []
        self._last_end: float | None = None
        self._regime = 0

    def observe(self, epoch: int, duration: float, now: float) -> float:
        """Take in one finished epoch and return the seconds left after it.

        Args:
            epoch: 0-based number of the epoch that ended.
            duration: What it took, in seconds.
            now: Clock reading at its end, in seconds.
        """
        wall = duration if self._last_end is None else max(duration, now - self._last_end)
        self._last_end = now
        self._walls.append(wall)
        return self._rate() * (self.total - epoch - 1)

    def within(self, epoch: int, done: float) -> float | None:
        """Return the seconds left inside an epoch, ``None`` before one has ended.

        Args:
            epoch: 0-based number of the running epoch.
            done: Share of it that is done, from 0 to 1.
        """
        if not self._walls:
            return None
        return self._rate() * (self.total - epoch - 1 + 1 - done)

    def _rate(self) -> float:
        window = self._window()
        if len(window) >= 2 * _REGIME_EPOCHS and _is_new_regime(window):
            self._regime = len(self._walls) - _REGIME_EPOCHS
            window = self._window()
        return fmean(window)

    def _window(self) -> Sequence[float]:
        logged = len(self._walls)
        oldest = max(self._regime, 1 if logged > 1 else 0)
        size = max(1, min(logged - oldest, math.ceil(logged / 2), _WINDOW_CAP))
        return self._walls[-size:]


def _is_new_regime(window: Sequence[float]) -> bool:
    middle, latest = median(window), window[-_REGIME_EPOCHS:]
    return all(wall > middle * _REGIME_FACTOR for wall in latest) or all(
        wall < middle / _REGIME_FACTOR for wall in latest
    )
