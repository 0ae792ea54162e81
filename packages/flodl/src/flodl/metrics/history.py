"""Values gathered over the batches of an epoch, and their means over all epochs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from flodl.metrics.trend import Trend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Read = Callable[[Sequence[Any]], list[float]]


class History:
    """Batch buffers by name, each flushed to a series with one mean an epoch.

    A value may be a number or a tensor of one element, which stays on its device until it is
    flushed. Another thread may read while values are added.
    """

    def __init__(self) -> None:
        self.flush_count = 0
        self._buffers: dict[str, list[tuple[Any, float]]] = {}
        self._series: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, value: Any, weight: float = 1.0) -> None:
        """Add one value of this epoch."""
        with self._lock:
            self._buffers.setdefault(name, []).append((value, weight))

    def pending(self, name: str) -> list[Any]:
        """Return the values added since the last flush."""
        with self._lock:
            return [value for value, _ in self._buffers.get(name, ())]

    def flush(self, names: Iterable[str] | None, read: Read) -> bool:
        """Append the weighted mean of each buffer to its series and empty it.

        Args:
            names: Which buffers; ``None`` means all.
            read: Turns all values into numbers at once, so that a device is waited for once.

        Returns:
            Whether there was anything to flush.
        """
        with self._lock:
            chosen = list(self._buffers) if names is None else list(names)
            taken = {name: self._buffers.pop(name) for name in chosen if self._buffers.get(name)}
        numbers = iter(read([value for items in taken.values() for value, _ in items]))
        means = {
            name: _weighted_mean([(next(numbers), weight) for _, weight in items])
            for name, items in taken.items()
        }
        with self._lock:
            for name, mean in means.items():
                self._series.setdefault(name, []).append(mean)
            self.flush_count += bool(means)
        return bool(means)

    def names(self) -> list[str]:
        """Return the names of all series, first recorded first."""
        with self._lock:
            return list(self._series)

    def trend(self, name: str) -> Trend:
        """Return the series of one name, empty if there is none."""
        with self._lock:
            return Trend(self._series.get(name, ()))

    def latest(self) -> dict[str, float]:
        """Return the newest value of each series."""
        with self._lock:
            return {name: values[-1] for name, values in self._series.items()}

    def reset(self, names: Iterable[str]) -> None:
        """Forget the series of these names; what is not flushed yet stays."""
        with self._lock:
            for name in names:
                self._series.pop(name, None)

    def series(self) -> dict[str, list[float]]:
        """Return a copy of all series."""
        with self._lock:
            return {name: list(values) for name, values in self._series.items()}

    def load(self, series: Mapping[str, Iterable[float]], flush_count: int) -> None:
        """Replace all series, as after a resume; buffers are emptied."""
        loaded = {name: [float(value) for value in values] for name, values in series.items()}
        with self._lock:
            self._series = loaded
            self._buffers = {}
            self.flush_count = flush_count

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            series = {name: list(values) for name, values in self._series.items()}
            return {"flush_count": self.flush_count, "_series": series}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._buffers = {}
        self._lock = threading.Lock()


def _weighted_mean(items: list[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in items)
    weighted = sum(value * weight for value, weight in items)
    return weighted / total if total else float("nan")
