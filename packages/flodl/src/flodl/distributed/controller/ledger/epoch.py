"""The work of one epoch: every position is free, leased, trained, committed or skipped."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

from flodl.core.errors import AccountingError
from flodl.distributed.protocol.ranges import complement, cut, joined, length, overlapping
from flodl.distributed.protocol.values import Range, Ranges


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochAccount:
    """What became of the samples of one epoch."""

    epoch: int
    total: int
    """Samples of the epoch, with those that were dropped."""
    committed: int
    dropped: int
    skipped_nonfinite: int
    retrained: int
    """Samples that a lost member had trained and another trained again."""

    @property
    def is_exact(self) -> bool:
        """Whether every sample was accounted for once."""
        return self.committed + self.skipped_nonfinite + self.dropped == self.total


@dataclass(kw_only=True, slots=True)
class LeasedWork:
    """A part of an epoch that one member holds; counts are positions from its start."""

    lease_id: int
    epoch: int
    member: str
    ranges: Ranges
    samples: int
    trained: int = 0
    marked: int = 0
    """How much of it goes into the window that is being averaged."""
    committed: int = 0

    @property
    def open_ranges(self) -> Ranges:
        """Positions that are not committed or skipped."""
        return cut(self.ranges, self.committed, self.samples)


@dataclass(kw_only=True, slots=True)
class EpochWork:
    """Free positions and terminal counts of one epoch; leases are kept by the ledger."""

    epoch: int
    bounds: Range
    dropped: int = 0
    free: list[Range] = field(default_factory=list)
    """Ascending, so that the one smaller batch at the end of a pass is leased last."""
    free_samples: int = 0
    committed: int = 0
    skipped: list[Range] = field(default_factory=list)
    skipped_samples: int = 0
    retrained: int = 0

    @classmethod
    def fresh(cls, epoch: int, bounds: Range, dropped: int) -> EpochWork:
        """Return an epoch of which nothing was done."""
        size = bounds[1] - bounds[0]
        return cls(epoch=epoch, bounds=bounds, dropped=dropped, free=[bounds], free_samples=size)

    @property
    def samples(self) -> int:
        """Positions to train."""
        return self.bounds[1] - self.bounds[0]

    @property
    def is_complete(self) -> bool:
        """Whether every position is committed or skipped."""
        return self.committed + self.skipped_samples == self.samples

    def take(self, samples: int) -> Ranges:
        """Remove positions from the front of the free ones, and return them."""
        taken: list[Range] = []
        left = min(samples, self.free_samples)
        self.free_samples -= left
        while left:
            start, stop = self.free[0]
            end = min(stop, start + left)
            taken.append((start, end))
            left -= end - start
            if end == stop:
                del self.free[0]
            else:
                self.free[0] = (end, stop)
        return tuple(taken)

    def claim(self, ranges: Ranges) -> bool:
        """Remove given positions from the free ones; returns whether all of them were free."""
        taken = [*complement(self.free, self.bounds), *ranges]
        low, high = self.bounds
        is_outside = any(start < low or stop > high for start, stop in ranges)
        if is_outside or overlapping(taken):
            return False
        self.free = list(complement(taken, self.bounds))
        self.free_samples -= length(ranges)
        return True

    def give_back(self, ranges: Ranges) -> None:
        """Make positions free again."""
        for piece in ranges:
            self._insert(piece)
        self.free_samples += length(ranges)

    def _insert(self, piece: Range) -> None:
        """Put a piece in its place, made one with neighbors that it touches."""
        start, stop = piece
        at = bisect.bisect_left(self.free, piece)
        if at < len(self.free) and self.free[at][0] == stop:
            stop = self.free.pop(at)[1]
        if at > 0 and self.free[at - 1][1] == start:
            at -= 1
            start = self.free.pop(at)[0]
        self.free.insert(at, (start, stop))

    def skip(self, ranges: Ranges) -> None:
        """Count positions as done without being trained into the consensus."""
        self.skipped.extend(ranges)
        self.skipped_samples += length(ranges)

    def account(self) -> EpochAccount:
        """Return what became of the epoch's samples so far."""
        return EpochAccount(
            epoch=self.epoch,
            total=self.samples + self.dropped,
            committed=self.committed,
            dropped=self.dropped,
            skipped_nonfinite=self.skipped_samples,
            retrained=self.retrained,
        )

    def committed_ranges(self, leased: list[LeasedWork]) -> Ranges:
        """Return the positions that are in the consensus.

        Args:
            leased: Every lease of this epoch that is still held.
        """
        others = [*self.free, *self.skipped]
        for work in leased:
            others.extend(work.open_ranges)
        return complement(others, self.bounds)

    def check(self, leased: list[LeasedWork]) -> None:
        """Check that the states partition the epoch.

        Args:
            leased: Every lease of this epoch that is still held.

        Raises:
            AccountingError: A position has two states, or a count is wrong.
        """
        pieces = [*self.free, *self.skipped, *(p for work in leased for p in work.open_ranges)]
        twice = overlapping(pieces)
        if twice is not None:
            raise AccountingError(f"epoch {self.epoch}: [{twice[0]}, {twice[1]}) has two states")
        low, high = self.bounds
        if any(start < low or stop > high for start, stop in pieces):
            raise AccountingError(f"epoch {self.epoch}: a range reaches out of [{low}, {high})")
        known = self.committed + length(pieces)
        if known != self.samples or self.free_samples != length(self.free):
            raise AccountingError(
                f"epoch {self.epoch}: {known} of {self.samples} samples are accounted for"
            )

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "epoch": self.epoch,
            "bounds": list(self.bounds),
            "dropped": self.dropped,
            "free": [list(piece) for piece in self.free],
            "committed": self.committed,
            "skipped": [list(piece) for piece in joined(self.skipped)],
            "retrained": self.retrained,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> EpochWork:
        """Return the epoch that ``to_state`` described."""
        free = [(start, stop) for start, stop in state["free"]]
        skipped = [(start, stop) for start, stop in state["skipped"]]
        low, high = state["bounds"]
        return cls(
            epoch=state["epoch"],
            bounds=(low, high),
            dropped=state["dropped"],
            free=free,
            free_samples=length(free),
            committed=state["committed"],
            skipped=skipped,
            skipped_samples=length(skipped),
            retrained=state["retrained"],
        )
