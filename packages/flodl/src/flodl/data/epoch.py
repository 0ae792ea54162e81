"""One pass over the data: which batches it has, and the iterator that yields them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from flodl.core.errors import DataWorkerError, StaleIteratorError
from flodl.data.streaming import Lookahead

if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl.data.batch import Batch


class Source(Protocol):
    """Where batches come from."""

    is_in_memory: bool
    count: int
    names: tuple[str, ...]
    sample_bytes: int

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch in the terms of ``gather``."""
        ...

    def gather(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of one batch."""
        ...


def batch_count(samples: int, batch_size: int, *, drop_last: bool) -> int:
    """Return how many batches ``samples`` samples make."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


@dataclass(kw_only=True, slots=True)
class EpochProgress:
    """The order of one epoch, and how much of it the consumer has taken.

    A resumed epoch starts at ``first_sample``, after ``first_batch`` batches.
    """

    epoch: int
    order: Tensor
    batch_size: int
    drop_last: bool
    first_sample: int = 0
    first_batch: int = 0
    taken: int = 0

    @property
    def batches(self) -> int:
        """Batches of this iteration, taken or not."""
        left = self.order.numel() - self.first_sample
        return batch_count(left, self.batch_size, drop_last=self.drop_last)

    @property
    def batches_consumed(self) -> int:
        """Batches of the epoch taken so far, before and after a resume."""
        return self.first_batch + self.taken

    @property
    def samples_consumed(self) -> int:
        """Samples of the epoch taken so far."""
        return min(self.first_sample + self.taken * self.batch_size, self.order.numel())

    @property
    def is_complete(self) -> bool:
        """Whether every batch has been taken."""
        return self.taken == self.batches


class EpochIterator:
    """Batches of one epoch; ``len()`` is how many are left.

    It may be left at any point. It ends after an error, and goes stale when its loader starts
    another epoch.
    """

    def __init__(
        self,
        progress: EpochProgress,
        load: Callable[[int], Batch],
        finish: Callable[[Batch], Batch] | None,
        depth: int,
    ) -> None:
        self._progress = progress
        self._stop = progress.batches
        self._next = 0
        self._is_stale = False
        self._finish = finish
        self._lookahead = Lookahead(load, range(self._stop), depth) if depth else None
        self._take = load if self._lookahead is None else self._lookahead.take

    def __iter__(self) -> EpochIterator:
        return self

    def __len__(self) -> int:
        return self._stop - self._next

    def __next__(self) -> Batch:
        number = self._next
        if number >= self._stop:
            self.close()
            raise StopIteration
        if self._is_stale:
            raise StaleIteratorError(
                f"epoch {self._progress.epoch}: this iterator ended when its loader started "
                "another epoch",
                hint="use one loader for each loop that runs at the same time",
            )
        try:
            batch = self._take(number)
            if self._finish is not None:
                batch = self._finish(batch)
        except Exception as error:
            self.close()
            raise self._failure(number, error) from error
        self._next = self._progress.taken = number + 1
        return batch

    def _failure(self, number: int, error: Exception) -> DataWorkerError:
        progress = self._progress
        start = progress.first_sample + number * progress.batch_size
        samples = progress.order[start : start + progress.batch_size].tolist()
        shown = ", ".join(map(str, samples[:8])) + (", ..." if len(samples) > 8 else "")
        return DataWorkerError(
            f"epoch {progress.epoch}, batch {progress.first_batch + number} (samples {shown}): "
            f"{type(error).__name__}: {error}"
        )

    def close(self) -> None:
        """End the iteration: no batches are left, and no background thread runs."""
        self._stop = self._next
        self._drop_lookahead(wait=True)

    def expire(self) -> None:
        """Make every further batch raise ``StaleIteratorError``."""
        self._is_stale = True
        self._drop_lookahead(wait=False)

    def _drop_lookahead(self, *, wait: bool) -> None:
        if self._lookahead is not None:
            self._lookahead.close(wait=wait)
            self._lookahead = None
