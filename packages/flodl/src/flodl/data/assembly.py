"""How a batch is formed on the host: gather its rows, name them, transform them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from flodl.core.errors import SampleError
from flodl.data.batch import Batch, default_names
from flodl.data.dataset import as_tensors, fields_of, item_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flodl.data.config import BatchTransform, Collate
    from flodl.data.dataset import AnyDataSet
    from flodl.data.jobs import BatchJob


class Empty(Protocol):
    """Makes a tensor on the host for a batch to be written into."""

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor with any content."""
        ...


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return ordinary memory for a batch."""
    return torch.empty(shape, dtype=dtype)


class Source(Protocol):
    """Where batches come from."""

    is_in_memory: bool
    count: int
    names: tuple[str, ...]
    sample_bytes: int

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch in the terms of ``gather``."""
        ...

    def gather(self, rows: Tensor, empty: Empty) -> tuple[Tensor, ...]:
        """Return the tensors of one batch, in new memory, that of ``empty`` where it can."""
        ...


class Assembly:
    """Forms batches of a source; it can be sent to another process when its parts can.

    Args:
        source: Where the rows are.
        names: Names of the tensors.
        transform: Called with each batch.
    """

    def __init__(
        self, source: Source, names: tuple[str, ...], transform: BatchTransform | None
    ) -> None:
        self._source = source
        self._names = names
        self._transform = transform

    def __call__(self, job: BatchJob, empty: Empty = empty) -> Batch:
        """Return the batch of a job."""
        return self.form(job.host_rows, job.epoch, job.index, empty)

    def form(self, rows: Tensor, epoch: int, index: int, empty: Empty = empty) -> Batch:
        """Return the batch of these rows."""
        tensors = self._source.gather(rows, empty)
        batch = Batch(tensors, self._names, epoch=epoch, index=index)
        return transformed("transform", self._transform, batch)


def transformed(name: str, transform: BatchTransform | None, batch: Batch) -> Batch:
    """Return the transformed batch, once it is one.

    Raises:
        TypeError: The transform returned something else.
    """
    if transform is None:
        return batch
    result: object = transform(batch)
    if not isinstance(result, Batch):
        raise TypeError(f"{name} returned a {type(result).__name__}: expected a flodl.data.Batch")
    return result


class CollatedSource:
    """Batches that a function forms of lists of samples.

    Raises:
        SampleError: What it forms of sample 0 holds no tensors.
    """

    is_in_memory = False

    def __init__(self, dataset: AnyDataSet, collate: Collate) -> None:
        self._read: Callable[[list[int]], list[Any]] = bulk_reader(dataset)
        self._collate = collate
        self._keys, tensors = self._formed([0])
        self.count = len(tensors)
        self.names = self._keys or default_names(self.count)
        self.sample_bytes = sum(tensor.nbytes for tensor in tensors)

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as indices of the data set."""
        return order

    def gather(self, rows: Tensor, _empty: Empty) -> tuple[Tensor, ...]:
        """Return what ``collate`` forms of the given samples.

        Raises:
            SampleError: It has other tensors than for sample 0, or not one row for each sample.
        """
        keys, tensors = self._formed(rows.tolist())
        if keys != self._keys or len(tensors) != self.count:
            raise SampleError(
                f"collate gave {keys or len(tensors)}: for sample 0 it gave "
                f"{self._keys or self.count}"
            )
        for name, tensor in zip(self.names, tensors, strict=True):
            if tensor.dim() == 0 or tensor.shape[0] != rows.numel():
                raise SampleError(
                    f"collate gave {name!r} as {list(tensor.shape)} for {rows.numel()} samples: "
                    "expected one row for each"
                )
        return tuple(tensors)

    def _formed(self, indices: list[int]) -> tuple[tuple[str, ...] | None, list[Tensor]]:
        formed = self._collate(self._read(indices))
        if isinstance(formed, Batch):
            return formed.names, formed.into_list()
        keys, values = fields_of(formed)
        if not values:
            raise SampleError("collate gave no tensors: expected one or more")
        return keys, as_tensors(values, "collate gave")


def bulk_reader(dataset: AnyDataSet) -> Callable[[list[int]], list[Any]]:
    """Return what reads several samples of a data set, at once where it can."""
    bulk: Callable[[list[int]], list[Any]] | None = getattr(dataset, "__getitems__", None)
    if bulk is not None:
        return bulk
    item = item_reader(dataset)

    def one_by_one(indices: list[int]) -> list[Any]:
        return [item(index) for index in indices]

    return one_by_one
