"""One pass over the data: which batches it has, and the iterator that yields them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from flodl.core.errors import DataStallError, StaleIteratorError
from flodl.data.partition import Range, Ranges, Split, cut, length, select, subtract

if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl.data.batch import Batch
    from flodl.data.feed import Feed


def batch_count(samples: int, batch_size: int, *, drop_last: bool) -> int:
    """Return how many batches ``samples`` samples make."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochPlan:
    """Which part of an epoch is whose, and in batches of how many samples.

    ``pending`` are the positions of the order that were open when this plan was made: all of them,
    or those that a resumed run had left.
    """

    pending: Ranges
    split: Split
    batch_size: int
    drop_last: bool

    def part(self, rank: int | None = None) -> Ranges:
        """Return the positions of one rank, in its order; this one's by default."""
        return self.split.ranges(
            self.pending, batch_size=self.batch_size, drop_last=self.drop_last, rank=rank
        )

    def batches(self, part: Ranges) -> int:
        """Return how many batches a part makes."""
        return batch_count(length(part), self.batch_size, drop_last=self.drop_last)

    def left(self, taken: dict[int, int]) -> Ranges:
        """Return the open positions after ranks took so many batches each."""
        gone: list[Range] = []
        for rank, count in taken.items():
            part = self.part(rank)
            samples = min(count, self.batches(part)) * self.batch_size
            gone += cut(part, 0, samples)
        return subtract(self.pending, gone)


@dataclass(kw_only=True, slots=True)
class EpochProgress:
    """The order of one epoch, this rank's part of it, and how much of that was taken.

    ``first_index`` is the number of the first batch of the part: not 0 when a resumed epoch was cut
    up anew. ``skipped`` batches of the part had been taken before.
    """

    epoch: int
    order: Tensor
    plan: EpochPlan
    first_index: int = 0
    skipped: int = 0
    taken: int = 0

    @property
    def samples(self) -> Tensor:
        """Samples of this rank, in its order."""
        return select(self.order, self.plan.part())

    @property
    def numbers(self) -> range:
        """Batches of the part that this iteration has."""
        return range(self.skipped, max(self.skipped, self.plan.batches(self.plan.part())))

    @property
    def batches_taken(self) -> int:
        """Batches of the part taken so far, before and after a resume."""
        return self.skipped + self.taken

    @property
    def is_complete(self) -> bool:
        """Whether every batch has been taken."""
        return self.taken == len(self.numbers)


class EpochIterator:
    """Batches of one epoch; ``len()`` is how many are left.

    It may be left at any point. It ends after an error, and goes stale when its loader starts
    another epoch.

    Args:
        progress: Told what was taken.
        feed: Gives the batches.
        abort: Called when loading hangs, to end what can be ended.
    """

    def __init__(
        self, progress: EpochProgress, feed: Feed, abort: Callable[[], None] | None = None
    ) -> None:
        self._progress = progress
        self._left = len(progress.numbers)
        self._is_stale = False
        self._feed: Feed | None = feed
        self._abort = abort

    def __iter__(self) -> EpochIterator:
        return self

    def __len__(self) -> int:
        return self._left

    def __next__(self) -> Batch:
        if self._left == 0:
            self.close()
            raise StopIteration
        if self._is_stale or self._feed is None:
            raise StaleIteratorError(
                f"epoch {self._progress.epoch}: this iterator ended when its loader started "
                "another epoch",
                hint="use one loader for each loop that runs at the same time",
            )
        try:
            batch = self._feed.take()
        except Exception as error:
            if self._abort is not None and isinstance(error, DataStallError):
                self._abort()
            self.close()
            raise
        assert batch is not None
        self._left -= 1
        self._progress.taken += 1
        return batch

    def close(self) -> None:
        """End the iteration: no batches are left, and no background thread runs."""
        self._left = 0
        self._drop_feed(wait=True)

    def expire(self) -> None:
        """Make every further batch raise ``StaleIteratorError``."""
        self._is_stale = True
        self._drop_feed(wait=False)

    def _drop_feed(self, *, wait: bool) -> None:
        if self._feed is not None:
            self._feed.close(wait=wait)
            self._feed = None
