"""Whole sets in memory: gathered where their tensors lie, or loaded onto a device."""

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
from flodl.data.storage import StoredSource
from flodl.device import GpuEvent

if TYPE_CHECKING:
    from flodl.data.assembly import Empty, Source
    from flodl.data.jobs import BatchJob, EpochRows

CHUNK_BYTES = 32 << 20


class ResidentSource:
    """Rows of tensors in memory: that of the host, or of a device where the user has put them.

    Args:
        view: The tensors, and where the samples lie in them.
        names: Their names.
        first: The sample that the first row holds, when rows before it are not there.
    """

    is_in_memory = True

    def __init__(self, view: InMemoryView, names: tuple[str, ...] | None, first: int = 0) -> None:
        self._view = view
        self._first = first
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
        return self._view.rows(order) - self._first if self._first else self._view.rows(order)

    def gather(self, rows: Tensor, empty: Empty) -> tuple[Tensor, ...]:
        """Return copies of the given rows, on the host."""
        return tuple([_picked(tensor, rows, empty) for tensor in self.tensors])


def _picked(tensor: Tensor, rows: Tensor, empty: Empty) -> Tensor:
    out = empty((rows.numel(), *tensor.shape[1:]), tensor.dtype)
    if tensor.device != out.device:
        return out.copy_(tensor.index_select(0, rows.to(tensor.device)))
    return torch.index_select(tensor, 0, rows, out=out)


class StorePlan:
    """Which rows of a source are kept on a device: its tensors as they are, or sample by sample.

    The tensors themselves are kept unless there are fewer samples than rows, as in a subset; those
    that lie on the device already are not copied.

    Args:
        source: What is read.
        samples: Those to keep.
        device: Where.
    """

    def __init__(self, source: Source, samples: range, device: torch.device) -> None:
        self._source = source
        self._samples = samples
        self._device = device
        self.rows = len(samples)
        self._tensors = self._whole_tensors()
        if self._tensors is not None:
            self.rows = self._tensors[0].shape[0]

    def _whole_tensors(self) -> tuple[Tensor, ...] | None:
        source = self._source.base if isinstance(self._source, StoredSource) else self._source
        if not isinstance(source, ResidentSource):
            return None
        is_there = source is self._source and all(
            tensor.device == self._device for tensor in source.tensors
        )
        is_small = self._samples.start == 0 and source.tensors[0].shape[0] <= self.rows
        return source.tensors if is_there or is_small else None

    @property
    def in_place(self) -> tuple[Tensor, ...] | None:
        """The tensors, if they need not be copied."""
        if self._tensors is None or isinstance(self._source, StoredSource):
            return None
        is_there = all(tensor.device == self._device for tensor in self._tensors)
        return self._tensors if is_there else None

    @property
    def n_bytes(self) -> int:
        """Bytes to be taken of the device, by the size of the first sample."""
        return 0 if self.in_place is not None else self._source.sample_bytes * self.rows

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as rows of what is kept."""
        return order - self._samples.start if self._tensors is None else self._source.place(order)

    def read(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """Return the rows from ``start`` to ``stop``, as they are kept."""
        if self._tensors is not None:
            parts = tuple(tensor[start:stop] for tensor in self._tensors)
            return self._source.cast(parts) if isinstance(self._source, StoredSource) else parts
        samples = self._samples[start:stop]
        rows = self._source.place(torch.arange(samples.start, samples.stop))
        return self._source.gather(rows, empty)


def load_rows(plan: StorePlan, device: torch.device) -> tuple[Tensor, ...]:
    """Return all rows of a plan on a device, read in chunks so that the host holds two of them.

    Raises:
        DataWorkerError: Rows cannot be read.
        SampleError: Rows differ from the first in shape or dtype.
    """
    if plan.in_place is not None:
        return plan.in_place
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
        if self._device.type != "cuda" or chunk.device.type != "cpu":
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
        if job.lease_id is not None and rows.device.is_cuda and job.start == 0:
            # another thread put the order of a lease there, for its own stream
            rows.device.record_stream(torch.cuda.current_stream(self._device))
        if rows.is_run and job.stop > job.start:
            first = int(self._plan.place(rows.samples[job.start : job.start + 1]))
            count = job.stop - job.start
            return tuple([tensor.narrow(0, first, count).clone() for tensor in self.tensors])
        picked = rows.device[job.start : job.stop]
        return tuple([torch.index_select(tensor, 0, picked) for tensor in self.tensors])
