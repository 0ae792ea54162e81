"""Where a loop takes its batches: formed by the loader, or gathered by the captured step itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, Self

from flodl.core.errors import StaleIteratorError
from flodl.data import Batch, DataLoader
from flodl.data.partition import length
from flodl.data.resident import DeviceStore
from flodl.data.resume import LoaderState
from flodl.engine.resident import ResidentRows, RowBatch


class EpochBatches(Protocol):
    """The batches of one epoch."""

    def __iter__(self) -> Iterator[Batch | RowBatch]:
        """Yield them in order."""
        ...

    def close(self) -> None:
        """End the iteration; may be called at any point."""
        ...


class Feeder(Protocol):
    """Gives a loop the batches of each epoch."""

    def epoch(self, number: int) -> EpochBatches:
        """Return the batches of one epoch."""
        ...


class GatheringFeeder:
    """Gives batches of a set on the device as places in its order; the step gathers the rows.

    Where the set is not on the device, and for a last batch with fewer rows, it gives what the
    loader gives. Rows are the same, in the same order.

    Args:
        loader: The loader; it has no ``device_transform`` and is not shared with other ranks.
        steps_per_replay: Batches that are given together, for one replay.
    """

    def __init__(self, loader: DataLoader, steps_per_replay: int = 1) -> None:
        self._loader = loader
        self._together = steps_per_replay
        self._rows: ResidentRows | None = None

    def epoch(self, number: int) -> EpochBatches:
        """Return the batches of one epoch; an earlier one goes stale."""
        loader = self._loader
        iterator = loader.epoch(number)
        store = loader.store
        if store is None:
            return iterator
        if self._rows is None or not self._rows.uses(store.tensors, store.order):
            self._rows = ResidentRows(store.tensors, loader.names, store.order, loader.batch_size)
        return GatheredEpoch(loader, store, self._rows, len(iterator), self._together)


class GatheredEpoch:
    """One epoch of a set on the device.

    Args:
        loader: The loader, which has just begun the epoch.
        store: The set and the order.
        rows: Whole batches in that order.
        left: Batches of the epoch.
        together: Batches that are given at once.
    """

    def __init__(
        self,
        loader: DataLoader,
        store: DeviceStore,
        rows: ResidentRows,
        left: int,
        together: int = 1,
    ) -> None:
        self._together = together
        self._loader = loader
        self._store = store
        self._rows = rows
        self._begun = LoaderState.from_dict(loader.state_dict())
        self._samples = length(self._begun.plan.part())
        self._taken = self._begun.taken
        self._end = self._begun.taken + left
        self._order_version = store.order._version  # noqa: SLF001 - torch has no public name for it
        self._is_open = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch | RowBatch:
        if self._taken == self._end or not self._is_open:
            raise StopIteration
        order = self._store.order
        if order._version != self._order_version:  # noqa: SLF001 - as above
            raise StaleIteratorError(
                f"epoch {self._begun.epoch}: this iterator ended when its loader started another",
                hint="use one loader for each loop that runs at the same time",
            )
        number, begun = self._taken, self._begun
        index = begun.batches + number - begun.taken
        size, many = self._rows.size, self._together
        if many > 1 and number + many <= min(self._end, self._samples // size):
            self._taken += many
            return self._rows.batch(number, epoch=begun.epoch, index=index, count=many)
        self._taken += 1
        start, stop = number * size, min((number + 1) * size, self._samples)
        if stop - start == size:
            return self._rows.batch(number, epoch=begun.epoch, index=index)
        parts = [tensor.index_select(0, order[start:stop]) for tensor in self._store.tensors]
        return Batch(parts, self._loader.names, epoch=begun.epoch, index=index)

    def close(self) -> None:
        """End the iteration, and let the loader know what was taken."""
        if not self._is_open:
            return
        self._is_open = False
        begun = self._begun
        if self._store.order._version != self._order_version:  # noqa: SLF001 - as above
            return
        state = replace(
            begun,
            taken=self._taken,
            batches=begun.batches + self._taken - begun.taken,
            samples_consumed=begun.samples_total()
            - length(begun.plan.left({begun.rank: self._taken})),
            is_complete=self._taken == self._end,
        )
        self._loader.load_state_dict(state.to_dict())
