"""A node's whole history in fixed memory: buckets that merge in pairs when they are full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# columns of a bucket's values
_N, _MIN, _MAX, _SUM, _LAST = range(5)
# columns of a bucket's place
_T0, _T1, _EPOCH, _STEP = range(4)
_FIRST_ROWS = 64
_FIRST_KEYS = 8
_TOGETHER = 16
"""Records that are put into buckets at once."""
# no value yet: neutral for count, minimum, maximum and sum
_EMPTY = (0.0, math.inf, -math.inf, 0.0, math.nan)


@dataclass(frozen=True, slots=True)
class SeriesSlice:
    """Part of a node's history: parallel arrays, one entry per bucket."""

    t: Floats
    """Unix milliseconds of the last record in the bucket."""
    epoch: Floats
    step: Floats
    keys: dict[str, Floats]
    """Per key an array of columns ``n, min, max, sum, last``; ``n`` is 0 where it is absent."""
    stride_ms: float

    def body(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "t": _whole(self.t),
            "epoch": _whole(self.epoch),
            "step": _whole(self.step),
            "keys": {key: _columns(rows) for key, rows in self.keys.items()},
            "stride_ms": round(self.stride_ms),
        }


class TieredSeries:
    """All values a node ever had, at a resolution that halves whenever the room is used up.

    While the record count is below the capacity, every value is exact. After that neighbors
    merge, and what is kept of several values is their minimum, maximum, mean and last.

    Args:
        capacity: Buckets to keep at most; an even number.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._columns: dict[str, int] = {}
        self._latest_keys: list[str] = []
        self._latest_columns: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        rows = min(_FIRST_ROWS, capacity)
        self._place: Floats = np.full((rows, 4), math.nan)
        self._values: Floats = _empty(rows, _FIRST_KEYS)
        self._used = 0
        self._stride = 1
        self._open = 0
        self._waiting: list[tuple[float, float, float]] = []
        self._waiting_values: list[list[float]] = []

    def __len__(self) -> int:
        self._settle()
        return self._used

    @property
    def keys(self) -> Sequence[str]:
        """Keys in first-seen order."""
        return tuple(self._columns)

    def add(
        self, ts: float, values: Mapping[str, float], *, epoch: int | None, step: int | None
    ) -> None:
        """Take in one record's values; those that are not in ``values`` stay absent."""
        keys = list(values)
        if keys != self._latest_keys:
            self._settle()
            self._latest_columns = np.array([self._column(key) for key in keys], dtype=np.int64)
            self._latest_keys = keys
        place = (ts, math.nan if epoch is None else epoch, math.nan if step is None else step)
        self._waiting.append(place)
        self._waiting_values.append(list(values.values()))
        # array operations cost the same for one record as for many
        if len(self._waiting) == _TOGETHER:
            self._settle()

    def slice(
        self,
        *,
        keys: Sequence[str] | None = None,
        points: int | None = None,
        start: float | None = None,
        end: float | None = None,
    ) -> SeriesSlice:
        """Return the buckets between two times, merged to at most ``points``."""
        self._settle()
        place = self._place[: self._used]
        chosen = np.ones(self._used, dtype=bool)
        if start is not None:
            chosen &= place[:, _T1] >= start
        if end is not None:
            chosen &= place[:, _T0] <= end
        place = place[chosen]
        wanted = self._columns if keys is None else {k: k for k in keys if k in self._columns}
        values = {key: self._values[: self._used, self._columns[key]][chosen] for key in wanted}
        factor = 1 if not points else max(1, math.ceil(len(place) / points))
        if factor > 1:
            place = _merge_places(place, factor)
            values = {key: _merge_values(rows, factor) for key, rows in values.items()}
        return SeriesSlice(
            t=place[:, _T1],
            epoch=place[:, _EPOCH],
            step=place[:, _STEP],
            keys=values,
            stride_ms=_typical_gap(place[:, _T1]),
        )

    def _settle(self) -> None:
        """Put what waits into buckets."""
        if not self._waiting:
            return
        places = np.array(self._waiting, dtype=np.float64)
        values = np.array(self._waiting_values, dtype=np.float64)
        self._waiting.clear()
        self._waiting_values.clear()
        done = 0
        while done < len(places):
            if self._open == 0 and self._used == self.capacity:
                self._halve()
            if self._stride == 1:
                count = min(len(places) - done, self.capacity - self._used)
                self._append(places[done : done + count], values[done : done + count])
            else:
                count = min(len(places) - done, self._stride - self._open)
                self._fold(places[done : done + count], values[done : done + count])
                self._open = (self._open + count) % self._stride
            done += count

    def _append(self, places: Floats, values: Floats) -> None:
        """Put each record into a bucket of its own."""
        first, end = self._used, self._used + len(places)
        self._make_room(end)
        self._place[first:end, _T0] = self._place[first:end, _T1] = places[:, 0]
        self._place[first:end, _EPOCH:] = places[:, 1:]
        self._values[first:end] = _EMPTY
        made = np.repeat(values[:, :, np.newaxis], 5, axis=2)
        made[:, :, _N] = 1
        self._values[first:end, self._latest_columns] = made
        self._used = end

    def _fold(self, places: Floats, values: Floats) -> None:
        """Put records into the bucket that is open, or into a new one."""
        if self._open == 0:
            self._make_room(self._used + 1)
            self._place[self._used] = (places[0, 0], places[0, 0], math.nan, math.nan)
            self._values[self._used] = _EMPTY
            self._used += 1
        row, columns = self._used - 1, self._latest_columns
        place = self._place[row]
        place[_T1] = places[-1, 0]
        for column, known in ((_EPOCH, places[:, 1]), (_STEP, places[:, 2])):
            told = known[~np.isnan(known)]
            if len(told):
                place[column] = told[-1]
        held = self._values[row, columns]
        held[:, _N] += len(values)
        np.minimum(held[:, _MIN], values.min(axis=0), out=held[:, _MIN])
        np.maximum(held[:, _MAX], values.max(axis=0), out=held[:, _MAX])
        held[:, _SUM] += values.sum(axis=0)
        held[:, _LAST] = values[-1]
        self._values[row, columns] = held

    def _halve(self) -> None:
        half = self.capacity // 2
        self._place[:half] = _merge_places(self._place[: self._used], 2)
        self._values[:half] = _merge_values(self._values[: self._used], 2)
        self._used = half
        self._stride *= 2

    def _make_room(self, rows: int) -> None:
        """Grow to at least so many rows, by doubling."""
        held = len(self._place)
        if rows <= held:
            return
        more = min(max(2 * held, rows), self.capacity) - held
        self._place = np.concatenate([self._place, np.full((more, 4), math.nan)])
        self._values = np.concatenate([self._values, _empty(more, self._values.shape[1])])

    def _column(self, key: str) -> int:
        column = self._columns.get(key)
        if column is not None:
            return column
        column = len(self._columns)
        if column == self._values.shape[1]:
            # by half: doubling would leave up to half of the room unused
            more = max(4, column // 2)
            self._values = np.concatenate(
                [self._values, _empty(self._values.shape[0], more)], axis=1
            )
        self._columns[key] = column
        return column


def _merge_places(place: Floats, factor: int) -> Floats:
    starts: npt.NDArray[np.int64] = np.arange(0, len(place), factor)
    if not len(starts):
        return place
    ends = np.minimum(starts + factor, len(place)) - 1
    merged: Floats = place[ends].copy()
    merged[:, _T0] = place[starts, _T0]
    for column in (_EPOCH, _STEP):
        # the last known number of the group, which need not be the last bucket's
        known = ~np.isnan(place[:, column])
        newest = np.maximum.reduceat(np.where(known, np.arange(len(place)), -1), starts)
        merged[:, column] = np.where(newest >= 0, place[np.maximum(newest, 0), column], math.nan)
    return merged


def _merge_values(values: Floats, factor: int) -> Floats:
    starts: npt.NDArray[np.int64] = np.arange(0, len(values), factor)
    if not len(starts):
        return values
    merged = np.empty((len(starts), *values.shape[1:]))
    for column, fold in ((_N, np.add), (_MIN, np.minimum), (_MAX, np.maximum), (_SUM, np.add)):
        merged[..., column] = fold.reduceat(values[..., column], starts)
    rows = np.arange(len(values)).reshape(-1, *([1] * (values.ndim - 2)))
    newest = np.maximum.reduceat(np.where(values[..., _N] > 0, rows, -1), starts)
    last = np.take_along_axis(values[..., _LAST], np.maximum(newest, 0), axis=0)
    merged[..., _LAST] = np.where(newest >= 0, last, math.nan)
    return merged


def _empty(rows: int, keys: int) -> Floats:
    made = np.empty((rows, keys, 5))
    made[:] = _EMPTY
    return made


def _columns(rows: Floats) -> dict[str, list[float | None]]:
    n = rows[:, _N]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = rows[:, _SUM] / n
    parts = {"min": rows[:, _MIN], "max": rows[:, _MAX], "mean": mean, "last": rows[:, _LAST]}
    present = n > 0
    return {
        name: [
            value if here else None for value, here in zip(column.tolist(), present, strict=True)
        ]
        for name, column in parts.items()
    }


def _whole(values: Floats) -> list[int | None]:
    return [None if math.isnan(value) else int(value) for value in values.tolist()]


def _typical_gap(times: Floats) -> float:
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0
