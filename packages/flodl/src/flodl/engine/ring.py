"""Losses and metrics on their way from the GPU to the host, without a wait in between."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

_LEAST_COLUMNS = 8
_LONGEST_LAG_S = 0.25
_LONG_STREAK = 16


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one step reported.

    Attributes:
        index: Number of the step, from 0; every batch counts, also in accumulation.
        names: Names of the values; the first is ``loss``.
        values: The values, in the order of the names.
    """

    index: int
    names: tuple[str, ...]
    values: tuple[float, ...]


class Chunk:
    """Consecutive rows of the ring that go to the host together."""

    __slots__ = ("_event", "_pinned", "_ring", "_values", "names", "start")

    def __init__(self, ring: MetricRing, start: int) -> None:
        self._ring: MetricRing | None = ring
        self._pinned: Tensor | None = None
        self._event: torch.cuda.Event | None = None
        self._values: list[list[float]] | None = None
        self.start = start
        self.names: list[tuple[str, ...]] = []

    def copied(self, pinned: Tensor, event: torch.cuda.Event) -> None:
        """Take note that a copy to the host is on its way."""
        self._pinned, self._event = pinned, event

    def is_ready(self) -> bool:
        """Return whether the values can be read without a wait."""
        return self._values is not None or (self._event is not None and self._event.query())

    def value(self, row: int, column: int) -> float:
        """Return a value of one step; waits for the GPU unless it is here already."""
        if self._values is None and self._event is None:
            assert self._ring is not None
            return self._ring.read(self.start + row, column)
        return self.rows()[row][column]

    def rows(self) -> list[list[float]]:
        """Return all values, after waiting for the copy."""
        if self._values is None:
            assert self._ring is not None
            assert self._pinned is not None
            assert self._event is not None
            self._event.synchronize()
            self._values = self._pinned[: len(self.names)].tolist()
            self._ring.reuse(self._pinned)
            self._ring = self._pinned = self._event = None
        return self._values


class EarlyReader:
    """Reads a value on a stream of its own, without waiting for what was launched after it.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._written, self._copied = torch.cuda.Event(), torch.cuda.Event()
        self._place = self._pinned()

    def _pinned(self) -> Tensor:
        return torch.empty((), pin_memory=True)

    def mark(self) -> None:
        """Take note that what is to be read is there once the work launched so far is done."""
        self._written.record(torch.cuda.current_stream(self._device))

    def read(self, value: Tensor) -> float:
        """Return a value, after waiting for the work up to the mark."""
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._written)
            self._place.copy_(value, non_blocking=True)
            self._copied.record(self._stream)
        self._copied.synchronize()
        return float(self._place)


class MetricRing:
    """Rows of float32 values on the GPU, one for each step, copied to the host half by half.

    A captured step computes its row; one small copy after the replay puts it here. Before a row
    can be overwritten, its copy to the host has been put on the same stream.

    Args:
        device: The GPU.
        rows: How many steps it holds.
    """

    def __init__(self, device: torch.device, rows: int) -> None:
        self._device = device
        self._half = max(rows // 2, 1)
        self._capacity = _LEAST_COLUMNS
        self._pending: deque[tuple[int, Chunk]] = deque()
        self._spare: list[Tensor] = []
        self.taken = 0
        """Rows counted so far."""
        self.is_read_at_once = False
        """Whether the host waits for the values of nearly every step."""
        self._read_of = -1
        self._streak = 0
        self._reader: EarlyReader | None = None
        self._early = -1
        self._allocate()

    def _allocate(self) -> None:
        self._rows = torch.zeros(2 * self._half, self._capacity, device=self._device)
        self._slots: dict[int, tuple[Tensor, ...]] = {}
        self._position = 0
        self._spare.clear()
        self._begin()

    def _begin(self) -> None:
        self._chunk = Chunk(self, self._position)
        self._first = self.taken
        self._began = time.perf_counter()

    def _grow(self, columns: int) -> None:
        """Make room for wider rows."""
        self._cut()
        for _, chunk in self._pending:
            chunk.rows()
        while self._capacity < columns:
            self._capacity *= 2
        self._allocate()

    def put(self, row: Tensor, names: tuple[str, ...]) -> tuple[Chunk, int]:
        """Store the values of a step, without waiting, and return where they are.

        Args:
            row: One value for each name, ``[names]``; 0-d when there is one.
            names: Names of the values.
        """
        count = len(names)
        slots = self._slots.get(count)
        if slots is None:
            if count > self._capacity:
                self._grow(count)
            columns = self._rows[:, 0] if count == 1 else self._rows[:, :count]
            slots = self._slots[count] = columns.unbind()
        slots[self._position].copy_(row, non_blocking=True)
        self._follow_reads()
        chunk, index = self._chunk, len(self._chunk.names)
        chunk.names.append(names)
        self._position += 1
        self.taken += 1
        if self._position % self._half == 0:
            self._cut()
            self._position %= 2 * self._half
            self._begin()
        elif time.perf_counter() - self._began > _LONGEST_LAG_S:
            self._cut()
            self._begin()
        return chunk, index

    def let_read_early(self) -> None:
        """Let the values put last be read while what is launched from now on still runs."""
        if self._reader is None:
            self._reader = EarlyReader(self._device)
        self._reader.mark()
        self._early = self.taken

    def _follow_reads(self) -> None:
        """Count the last step as one that was read at once, or as one that was not."""
        if self._read_of == self.taken:
            self._streak = min(self._streak + 1, _LONG_STREAK)
            if self._streak == _LONG_STREAK:
                self.is_read_at_once = True
        elif self._streak > 0:
            self._streak -= 1
            if self._streak == 0:
                self.is_read_at_once = False

    def _cut(self) -> None:
        """Send the rows of the current chunk to the host."""
        chunk = self._chunk
        count = len(chunk.names)
        if not count:
            return
        pinned = self._spare.pop() if self._spare else self._pinned()
        rows = self._rows[chunk.start : chunk.start + count]
        pinned[:count].copy_(rows, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        chunk.copied(pinned, event)
        self._pending.append((self._first, chunk))

    def _pinned(self) -> Tensor:
        return torch.empty(self._half, self._capacity, pin_memory=True)

    def reuse(self, pinned: Tensor) -> None:
        """Take back a host buffer that has been read."""
        if pinned.shape[1] == self._capacity:
            self._spare.append(pinned)

    def read(self, row: int, column: int) -> float:
        """Return one value, waiting for the GPU."""
        self._read_of = self.taken
        slots = self._slots.get(1) if column == 0 else None
        value = self._rows[row, column] if slots is None else slots[row]
        if self._reader is not None and self._early == self.taken:
            return self._reader.read(value)
        return float(value.item())

    def poll(self) -> list[StepRecord]:
        """Return what has arrived on the host since the last call, in order, without waiting."""
        records = []
        while self._pending and self._pending[0][1].is_ready():
            records += self._records(*self._pending.popleft())
        return records

    def flush(self) -> list[StepRecord]:
        """Return everything that was not returned yet, after waiting for it."""
        self._cut()
        self._begin()
        records = []
        while self._pending:
            records += self._records(*self._pending.popleft())
        return records

    @staticmethod
    def _records(first: int, chunk: Chunk) -> list[StepRecord]:
        return [
            StepRecord(first + offset, names, tuple(values[: len(names)]))
            for offset, (names, values) in enumerate(zip(chunk.names, chunk.rows(), strict=True))
        ]
