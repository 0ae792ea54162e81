"""Questions about how a metric develops over epochs, for decisions in training code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from flodl.core.errors import ConfigError

Mode = Literal["min", "max"]

_BARS = "▁▂▃▄▅▆▇█"


class Trend:
    """The values of one metric, one an epoch, oldest first.

    A ``window`` of 0 means all values, else the last ``window`` ones.
    """

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values = tuple(float(value) for value in values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> list[float]:
        """All values."""
        return list(self._values)

    def last(self, n: int) -> list[float]:
        """Return the last ``n`` values, fewer if there are fewer."""
        return list(self._values[-n:]) if n > 0 else []

    @property
    def latest(self) -> float:
        """The newest value; NaN if there is none."""
        return self._values[-1] if self._values else math.nan

    @property
    def mean(self) -> float:
        """Mean of all values; NaN if there are none."""
        return _mean(self._values)

    @property
    def min(self) -> float:
        """Smallest value; NaN if there is none."""
        return min(self._values, default=math.nan)

    @property
    def max(self) -> float:
        """Largest value; NaN if there is none."""
        return max(self._values, default=math.nan)

    def slope(self, window: int = 0) -> float:
        """Return the slope of the least-squares line over ``x = 0, 1, …``; 0.0 below two values."""
        values = self._window(window)
        n = len(values)
        if n < 2:
            return 0.0
        sum_x = n * (n - 1) / 2
        sum_xx = (n - 1) * n * (2 * n - 1) / 6
        sum_y = math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
        sum_xy = sum(x * y for x, y in enumerate(values))
        return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x**2)

    def improving(self, window: int = 0, mode: Mode = "min") -> bool:
        """Return whether the slope points the right way: down, or up with ``mode="max"``."""
        if mode not in get_args(Mode):
            raise ConfigError(f"improving(mode={mode!r}): it is 'min' or 'max'")
        if len(self._window(window)) < 2 or self.diverged(window):
            return False
        slope = self.slope(window)
        return slope < 0 if mode == "min" else slope > 0

    def stalled(self, window: int = 0, tol: float = 1e-4) -> bool:
        """Return whether the window is full and its slope within ``tol`` of zero."""
        return self._is_full(window) and abs(self.slope(window)) < tol

    def converged(self, window: int = 0, tol: float = 1e-5) -> bool:
        """Return whether the window is full and its population variance below ``tol``."""
        if not self._is_full(window):
            return False
        values = self._window(window)
        mean = _mean(values)
        return sum((value - mean) ** 2 for value in values) / len(values) < tol

    def diverged(self, window: int = 1) -> bool:
        """Return whether a value in the window is NaN or infinite.

        All other questions are answered with no then.
        """
        return not all(map(math.isfinite, self._window(window)))

    def _window(self, window: int) -> tuple[float, ...]:
        if window < 0:
            raise ConfigError(f"window={window}: it is 0 for all values, or how many of the last")
        return self._values[-window:] if window > 0 else self._values

    def _is_full(self, window: int) -> bool:
        return len(self._window(window)) >= max(2, window) and not self.diverged(window)

    def __repr__(self) -> str:
        return f"Trend({len(self)} values, latest={self.latest:.6g}, {self.sparkline()})"

    def sparkline(self, width: int = 40) -> str:
        """Return the last values as a line of bars; a value that is no number is a space."""
        values = self._values[-width:]
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return " " * len(values)
        low, span = min(finite), max(finite) - min(finite)
        return "".join(_bar(value, low, span) for value in values)

    def _repr_html_(self) -> str:
        return f'<span title="{len(self)} values">{self.sparkline()} {self.latest:.6g}</span>'


class TrendGroup:
    """Several trends asked together. About an empty group every question is answered with no."""

    def __init__(self, trends: Sequence[Trend]) -> None:
        self.trends = tuple(trends)

    def __len__(self) -> int:
        return len(self.trends)

    def all_improving(self, window: int = 0, mode: Mode = "min") -> bool:
        """Return whether every trend improves."""
        return self._all(lambda trend: trend.improving(window, mode))

    def any_improving(self, window: int = 0, mode: Mode = "min") -> bool:
        """Return whether some trend improves."""
        return any(trend.improving(window, mode) for trend in self.trends)

    def all_stalled(self, window: int = 0, tol: float = 1e-4) -> bool:
        """Return whether every trend is stalled."""
        return self._all(lambda trend: trend.stalled(window, tol))

    def any_stalled(self, window: int = 0, tol: float = 1e-4) -> bool:
        """Return whether some trend is stalled."""
        return any(trend.stalled(window, tol) for trend in self.trends)

    def all_converged(self, window: int = 0, tol: float = 1e-5) -> bool:
        """Return whether every trend has converged."""
        return self._all(lambda trend: trend.converged(window, tol))

    def any_converged(self, window: int = 0, tol: float = 1e-5) -> bool:
        """Return whether some trend has converged."""
        return any(trend.converged(window, tol) for trend in self.trends)

    def slopes(self, window: int = 0) -> list[float]:
        """Return the slope of each trend."""
        return [trend.slope(window) for trend in self.trends]

    def mean_slope(self, window: int = 0) -> float:
        """Return the mean of the slopes, 0.0 for an empty group."""
        return _mean(self.slopes(window)) if self.trends else 0.0

    def _all(self, question: Callable[[Trend], bool]) -> bool:
        return bool(self.trends) and all(map(question, self.trends))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _bar(value: float, low: float, span: float) -> str:
    if not math.isfinite(value):
        return " "
    return _BARS[round((value - low) / span * (len(_BARS) - 1)) if span else 0]
