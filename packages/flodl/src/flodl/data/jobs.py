"""What a loader is asked for next: which rows make a batch, and where they lie in the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flodl.core.errors import DataStallError, DataWorkerError

if TYPE_CHECKING:
    from torch import Tensor

    from flodl.data.partition import Ranges


@dataclass(kw_only=True, slots=True)
class EpochRows:
    """The samples to visit, and the rows that hold them: on the host and on the device.

    ``is_run`` says that the rows follow one another.
    """

    samples: Tensor
    host: Tensor
    device: Tensor | None = None
    is_run: bool = False


def is_run(rows: Tensor) -> bool:
    """Return whether each row is the one after the row before it."""
    count = rows.numel()
    if count == 0 or int(rows[-1]) - int(rows[0]) != count - 1:  # settles nearly all shuffles
        return False
    return bool((rows.diff() == 1).all())


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchJob:
    """One batch to load: ``rows[start:stop]``."""

    rows: EpochRows
    start: int
    stop: int
    epoch: int
    index: int
    lease_id: int | None = None
    ranges: Ranges = ()

    @property
    def host_rows(self) -> Tensor:
        """The rows, on the host."""
        return self.rows.host[self.start : self.stop]

    def failed(self, error: Exception) -> DataWorkerError | DataStallError:
        """Return the error that names this batch and its samples, for what loading it raised."""
        samples = self.rows.samples[self.start : self.stop].tolist()
        shown = ", ".join(map(str, samples[:8])) + (", ..." if len(samples) > 8 else "")
        place = f"epoch {self.epoch}, batch {self.index} (samples {shown})"
        if isinstance(error, DataStallError):
            return DataStallError(f"{place}: {error.message}", hint=error.hint)
        return DataWorkerError(f"{place}: {type(error).__name__}: {error}")


class EpochJobs:
    """The batches of one epoch, one call each.

    Args:
        rows: What is visited.
        epoch: Its number.
        batch_size: Rows of a batch.
        numbers: Batches to load, counted from the start of ``rows``.
        first_index: Position in the epoch of batch 0.
    """

    def __init__(
        self, rows: EpochRows, epoch: int, batch_size: int, numbers: range, first_index: int
    ) -> None:
        self._rows = rows
        self._epoch = epoch
        self._size = batch_size
        self._numbers = iter(numbers)
        self._first_index = first_index
        self._end = rows.host.numel()

    def __call__(self) -> BatchJob | None:
        """Return the next job, ``None`` after the last."""
        number = next(self._numbers, None)
        if number is None:
            return None
        start = number * self._size
        return BatchJob(
            rows=self._rows,
            start=start,
            stop=min(start + self._size, self._end),
            epoch=self._epoch,
            index=self._first_index + number,
        )
