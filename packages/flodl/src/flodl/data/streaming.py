"""Batches fetched from a data set as they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.core.errors import DataWorkerError, SampleError
from flodl.data.adapter import DataSetAdapter
from flodl.data.batch import default_names
from flodl.data.dataset import as_tensors, declared_names, fields_of
from flodl.data.memmap import MemmapDataSet, TokenWindows

if TYPE_CHECKING:
    from flodl.data.assembly import Empty
    from flodl.data.dataset import BatchDataSet, Fields


class FetchSource:
    """Batches through ``get_batch``, each checked against the first sample.

    Raises:
        DataWorkerError: Sample 0 cannot be read.
        SampleError: Sample 0 has no tensors.
    """

    is_in_memory = False

    def __init__(self, dataset: BatchDataSet) -> None:
        self._dataset = dataset
        try:
            first = dataset.get_batch(torch.zeros(1, dtype=torch.int64))
        except SampleError:
            raise
        except Exception as error:
            raise DataWorkerError(
                f"reading sample 0 to learn its layout: {type(error).__name__}: {error}"
            ) from error
        keys, values = fields_of(first)
        tensors = as_tensors(values, "get_batch gave")
        if not tensors:
            raise SampleError("get_batch gave no tensors for sample 0: expected one or more")
        self._keys = keys
        self._dtypes = [tensor.dtype for tensor in tensors]
        self.count = len(tensors)
        self._labels = keys or default_names(self.count)
        self.names = keys or declared_names(dataset) or self._labels
        self.sample_bytes = sum(tensor.nbytes for tensor in tensors)
        self._checked(tensors, 1)

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as indices of the data set."""
        return order

    def gather(self, rows: Tensor, empty: Empty) -> tuple[Tensor, ...]:
        """Return the batch of the given samples.

        Raises:
            SampleError: It has other tensors than sample 0, or not one row for each sample.
        """
        keys, values = fields_of(self._read(rows, empty))
        if keys is not None and keys != self._keys and set(keys) == set(self._keys or ()):
            by_key = dict(zip(keys, values, strict=True))
            keys, values = self._keys, [by_key[key] for key in self._keys or ()]
        if keys != self._keys or len(values) != self.count:
            raise SampleError(
                f"get_batch gave {keys or len(values)}: for sample 0 it gave "
                f"{self._keys or self.count}"
            )
        return self._checked(as_tensors(values, "get_batch gave"), rows.numel())

    def _read(self, rows: Tensor, empty: Empty) -> Fields:
        if isinstance(self._dataset, DataSetAdapter | MemmapDataSet | TokenWindows):
            return self._dataset.stacked(rows, empty)
        return self._dataset.get_batch(rows)

    def _checked(self, tensors: list[Tensor], rows: int) -> tuple[Tensor, ...]:
        for name, tensor, dtype in zip(self._labels, tensors, self._dtypes, strict=True):
            if tensor.dim() == 0 or tensor.shape[0] != rows or tensor.dtype != dtype:
                raise SampleError(
                    f"get_batch gave {name!r} as {tensor.dtype} {list(tensor.shape)} for {rows} "
                    f"samples: expected {dtype} with {rows} rows"
                )
        return tuple(tensors)
