"""Batches fetched from a data set as they are needed, in a background thread when asked."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.core.errors import DataWorkerError, SampleError
from flodl.data.batch import default_names
from flodl.data.dataset import as_tensor, declared_names, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from flodl.data.batch import Batch
    from flodl.data.dataset import BatchDataSet


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
        tensors = [as_tensor(value) for value in values]
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

    def gather(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the batch of the given samples.

        Raises:
            SampleError: It has other tensors than sample 0, or not one row for each sample.
        """
        keys, values = fields_of(self._dataset.get_batch(rows))
        if keys is not None and keys != self._keys and set(keys) == set(self._keys or ()):
            by_key = dict(zip(keys, values, strict=True))
            keys, values = self._keys, [by_key[key] for key in self._keys or ()]
        if keys != self._keys or len(values) != self.count:
            raise SampleError(
                f"get_batch gave {keys or len(values)}: for sample 0 it gave "
                f"{self._keys or self.count}"
            )
        return self._checked([as_tensor(value) for value in values], rows.numel())

    def _checked(self, tensors: list[Tensor], rows: int) -> tuple[Tensor, ...]:
        for name, tensor, dtype in zip(self._labels, tensors, self._dtypes, strict=True):
            if tensor.dim() == 0 or tensor.shape[0] != rows or tensor.dtype != dtype:
                raise SampleError(
                    f"get_batch gave {name!r} as {tensor.dtype} {list(tensor.shape)} for {rows} "
                    f"samples: expected {dtype} with {rows} rows"
                )
        return tuple(tensors)


class Lookahead:
    """Batches loaded ahead in one background thread, handed out in order.

    The thread never waits for the consumer: taking a batch asks for one more. So an epoch can be
    left at any point, and an error waits in its batch until that batch is taken.

    Args:
        load: Loads one batch; called in the thread.
        indices: Batches to load.
        depth: How many are asked for ahead.
    """

    def __init__(self, load: Callable[[int], Batch], indices: range, depth: int) -> None:
        self._load = load
        self._ahead = iter(indices)
        self._pending: deque[Future[Batch]] = deque()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flodl-data")
        for _ in range(depth):
            self._request()

    def _request(self) -> None:
        for index in self._ahead:
            self._pending.append(self._executor.submit(self._load, index))
            break

    def take(self, _index: int) -> Batch:
        """Return the next batch, waiting until it is loaded; raise what loading it raised."""
        batch = self._pending[0].result()
        self._pending.popleft()  # after the wait: Ctrl-C during it loses no batch
        self._request()
        return batch

    def close(self, *, wait: bool) -> None:
        """Drop batches that were not taken and end the thread, after the load in progress."""
        self._executor.shutdown(wait=wait, cancel_futures=True)
        self._pending.clear()

    def __del__(self) -> None:
        if hasattr(self, "_executor"):
            self.close(wait=False)
