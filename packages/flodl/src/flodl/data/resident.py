"""Whole sets in memory: gathered on the host where tensors lie there, or loaded onto a device."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.core.errors import DataWorkerError, SampleError
from flodl.data.assembly import empty
from flodl.data.batch import default_names
from flodl.data.compose import InMemoryView
from flodl.data.dataset import declared_names
from flodl.data.jobs import is_run
from flodl.device import GpuEvent

if TYPE_CHECKING:
    from flodl.data.assembly import Empty, Source
    from flodl.data.jobs import BatchJob, EpochRows

CHUNK_BYTES = 32 << 20


class ResidentSource:
    """Rows of tensors in host memory.

    Args:
        view: The tensors, and where the samples lie in them.
        names: Their names.
    """

    is_in_memory = True

    def __init__(self, view: InMemoryView, names: tuple[str, ...] | None) -> None:
        self._view = view
        self.tensors = view.tensors
        self.count = len(view.tensors)
        self.names = names or default_names(self.count)
        self.sample_bytes = sum(tensor[:1].nbytes for tensor in view.tensors)

    @classmethod
    def of(cls, dataset: object) -> ResidentSource | None:
        """Return the source of a data set that is nothing but rows in memory, else ``None``."""
        view = InMemoryView.of(dataset)
        return None if view is None else cls(view, declared_names(dataset))

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as rows of the tensors."""
        return self._view.rows(order)

    def gather(self, rows: Tensor, empty: Empty) -> tuple[Tensor, ...]:
        """Return copies of the given rows."""
        count = rows.numel()
        return tuple(
            [
                torch.index_select(
                    tensor, 0, rows, out=empty((count, *tensor.shape[1:]), tensor.dtype)
                )
                for tensor in self.tensors
            ]
        )


class StorePlan:
    """Which rows of a source are kept on a device: its tensors as they are, or sample by sample.

    The tensors themselves are kept unless there are fewer samples than rows, as in a subset.

    Args:
        source: What is read.
        length: Samples in the data set.
    """

    def __init__(self, source: Source, length: int) -> None:
        self._source = source
        self._tensors: tuple[Tensor, ...] | None = None
        self.rows = length
        if isinstance(source, ResidentSource) and source.tensors[0].shape[0] <= length:
            self._tensors = source.tensors
            self.rows = source.tensors[0].shape[0]

    @property
    def n_bytes(self) -> int:
        """Bytes of all rows, by the size of the first sample."""
        return self._source.sample_bytes * self.rows

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as rows of what is kept."""
        return order if self._tensors is None else self._source.place(order)

    def read(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """Return the rows from ``start`` to ``stop``, on the host."""
        if self._tensors is not None:
            return tuple(tensor[start:stop] for tensor in self._tensors)
        return self._source.gather(self._source.place(torch.arange(start, stop)), empty)


def load_rows(plan: StorePlan, device: torch.device) -> tuple[Tensor, ...]:
    """Return all rows of a plan on a device, read in chunks so that the host holds two of them.

    Raises:
        DataWorkerError: Rows cannot be read.
        SampleError: Rows differ from the first in shape or dtype.
    """
    first = _read(plan, 0, 1)
    kept = tuple(
        torch.empty((plan.rows, *part.shape[1:]), dtype=part.dtype, device=device) for part in first
    )
    copies = _Copies(device)
    step = max(1, CHUNK_BYTES // max(1, sum(part.nbytes for part in first)))
    for start in range(0, plan.rows, step):
        stop = min(start + step, plan.rows)
        for target, chunk in zip(kept, _read(plan, start, stop), strict=True):
            if chunk.shape != target[start:stop].shape or chunk.dtype != target.dtype:
                raise SampleError(
                    f"samples {start} to {stop - 1} are {chunk.dtype} {list(chunk.shape[1:])}: "
                    f"sample 0 is {target.dtype} {list(target.shape[1:])}",
                    hint="samples of different shapes are streamed: streaming=True, with a collate",
                )
            copies.put(target[start:stop], chunk)
    copies.finish()
    return kept


def _read(plan: StorePlan, start: int, stop: int) -> tuple[Tensor, ...]:
    try:
        return plan.read(start, stop)
    except Exception as error:
        raise DataWorkerError(
            f"loading the whole set, samples {start} to {stop - 1}: {type(error).__name__}: {error}"
        ) from error


class _Copies:
    """Copies onto a device through page-locked memory, of which two pieces are in use at most."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._under_way: deque[GpuEvent] = deque()

    def put(self, target: Tensor, chunk: Tensor) -> None:
        """Copy a chunk; on a GPU it arrives later, in the order of its current stream."""
        if self._device.type != "cuda":
            target.copy_(chunk)
            return
        if len(self._under_way) > 1:
            self._under_way.popleft().synchronize()
        staged = torch.empty(chunk.shape, dtype=chunk.dtype, pin_memory=True).copy_(chunk)
        target.copy_(staged, non_blocking=True)
        event = GpuEvent(timing=False, device=self._device)
        event.record()
        self._under_way.append(event)

    def finish(self) -> None:
        """Wait for the copies."""
        for event in self._under_way:
            event.synchronize()


class DeviceStore:
    """A whole data set on a device, and the order of the current epoch beside it.

    ``tensors`` never move, and ``order`` only when an epoch has more samples than any before: a
    captured step may read both in place.

    Args:
        plan: What is kept.
        device: Where.

    Raises:
        torch.OutOfMemoryError: The device has no room.
    """

    def __init__(self, plan: StorePlan, device: torch.device) -> None:
        self._plan = plan
        self._device = device
        self.tensors = load_rows(plan, device)
        self.order = torch.empty(0, dtype=torch.int64, device=device)

    def begin(self, rows: EpochRows, *, in_place: bool) -> None:
        """Put the order of an epoch onto the device, into ``order`` when ``in_place``."""
        placed = self._plan.place(rows.samples)
        rows.is_run = is_run(placed)
        if not in_place:
            rows.device = placed.to(self._device)
            return
        if placed.numel() > self.order.numel():
            self.order = torch.empty_like(placed, device=self._device)
        rows.device = self.order[: placed.numel()]
        rows.device.copy_(placed)

    def gather(self, job: BatchJob) -> tuple[Tensor, ...]:
        """Return copies of the rows of a batch, on the device."""
        rows = job.rows
        assert rows.device is not None
        if rows.is_run and job.stop > job.start:
            first = int(self._plan.place(rows.samples[job.start : job.start + 1]))
            count = job.stop - job.start
            return tuple([tensor.narrow(0, first, count).clone() for tensor in self.tensors])
        picked = rows.device[job.start : job.stop]
        return tuple([torch.index_select(tensor, 0, picked) for tensor in self.tensors])
