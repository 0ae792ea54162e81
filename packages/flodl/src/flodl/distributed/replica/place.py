"""How far a loop on several devices is in the epochs of its loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from flodl.data.partition import Ranges, cut, length
from flodl.data.resume import order_crc

if TYPE_CHECKING:
    from flodl.data.epoch import EpochProgress
    from flodl.data.leases import LeaseFeed
    from flodl.data.loader import DataLoader


@final
class Place:
    """The place in a loader's epoch, whose batches the leases of several loaders deliver.

    It is kept in the loader that the user holds: what that saves and loads is the same as after a
    loop on one device.

    Args:
        source: The loader that the user holds.
        loaders: Those that read: on the devices that are driven from here.
    """

    def __init__(self, source: DataLoader, loaders: Sequence[DataLoader]) -> None:
        self.batch_size = source.batch_size
        self.epoch = 0
        self._loaders = list(loaders)
        self._position = source._position  # noqa: SLF001 - leases leave it to who hands them out
        self._progress: EpochProgress | None = None
        self._part: Ranges = ()
        self._planned = 0

    @property
    def order_crc(self) -> int:
        """CRC of the order of the epoch."""
        return 0 if self._progress is None else order_crc(self._progress.order)

    @property
    def first_index(self) -> int:
        """Number of the first batch."""
        progress = self._progress
        return 0 if progress is None else progress.first_index + progress.skipped

    @property
    def batches_left(self) -> int:
        """Batches that are not shared out yet."""
        return 0 if self._progress is None else len(self._progress.numbers) - self._planned

    def enter(self, epoch: int) -> list[LeaseFeed]:
        """Enter an epoch, at its start or where a loaded state left it; return the leases.

        Raises:
            SamplerError: The sampler gave an order that does not fit the data set.
        """
        progress = self._position.begin(epoch)
        feeds = [self._opened(loader, progress) for loader in self._loaders]
        self._position._current = progress  # noqa: SLF001 - leases made it leave
        part = progress.plan.part()
        self.epoch, self._progress, self._planned = epoch, progress, 0
        self._part = cut(part, progress.skipped * self.batch_size, length(part))
        return feeds

    def _opened(self, loader: DataLoader, progress: EpochProgress) -> LeaseFeed:
        feed = loader.leases()
        # Not one that each loader draws: a sampler of torch may give another order each time.
        feed._orders[progress.epoch] = progress.order  # noqa: SLF001
        loader._delivery.depth.begin_epoch()  # noqa: SLF001 - as where the order is drawn
        return feed

    def next_batches(self, count: int) -> Ranges:
        """Share out so many batches, and return where they lie in the order of the epoch."""
        first = self._planned * self.batch_size
        self._planned += count
        return cut(self._part, first, min(self._planned * self.batch_size, length(self._part)))

    def next_rows(self, sizes: Callable[[int], Sequence[int]]) -> list[Ranges]:
        """Share out the rows of one batch, and return where those of each rank lie."""
        batch = self.next_batches(1)
        parts, start = list[Ranges](), 0
        for size in sizes(length(batch)):
            parts.append(cut(batch, start, start + size))
            start += size
        return parts

    def count(self, batches: int) -> None:
        """See that the loop took batches, not only that they are loaded ahead."""
        if self._progress is not None:
            self._progress.taken += batches
