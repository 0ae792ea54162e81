"""The way of a batch to its device, begun in a background thread and ended by the consumer."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from flodl.core.errors import ConfigError
from flodl.device import GpuEvent, GpuStream, StreamGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.data.batch import Batch


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch on its way; ``arrived`` is when its tensors may be used."""

    batch: Batch
    arrived: GpuEvent | None = None
    is_held_back: bool = False
    """It stayed on the host, as its device had no memory when it was sent."""


class Transfer(Protocol):
    """Moves batches to one device."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return host memory from which batches move fastest."""
        ...

    def send(self, batch: Batch) -> Sent:
        """Begin to move a batch; called in a background thread, or by the consumer."""
        ...

    def receive(self, sent: Sent) -> Batch:
        """Return a batch that the consumer's later work finds on the device."""
        ...


class HostTransfer:
    """Batches that stay in host memory, or go to a device without streams of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return ordinary memory."""
        return torch.empty(shape, dtype=dtype)

    def send(self, batch: Batch) -> Sent:
        """Return the batch as it is."""
        return Sent(batch)

    def receive(self, sent: Sent) -> Batch:
        """Return the batch, on its device."""
        is_there = all(tensor.device == self._device for tensor in sent.batch)
        return sent.batch if is_there else sent.batch.to(self._device)


class PinningTransfer:
    """Batches in page-locked host memory, for users who move them to a GPU themselves.

    Raises:
        ConfigError: torch has no GPU to lock pages for.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ConfigError(
                "pin=True: torch sees no GPU here, and only copies to one profit",
                hint="leave pin out on machines without a GPU",
            )

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return page-locked memory."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def send(self, batch: Batch) -> Sent:
        """Copy what is not page-locked yet."""
        return Sent(pinned(batch.to("cpu")))

    def receive(self, sent: Sent) -> Batch:
        """Return the batch."""
        return sent.batch


class StreamTransfer:
    """Copies to a GPU that overlap its work: page-locked memory, a stream of their own, events.

    torch's allocator hands out page-locked blocks again once the copies from them are done, so
    a few blocks serve a whole run. Several threads may send.

    Args:
        device: The GPU.
        max_pinned_bytes: Page-locked bytes that may wait for their copy; a sender over it waits.
    """

    def __init__(self, device: torch.device, max_pinned_bytes: int) -> None:
        self._device = device
        self._stream = GpuStream(device)
        self._max_pinned_bytes = max_pinned_bytes
        self._lock = threading.Lock()
        self._on_the_way: deque[tuple[GpuEvent, int]] = deque()
        self._pinned_bytes = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return page-locked memory."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def send(self, batch: Batch) -> Sent:
        """Begin the copy on the stream of copies; raise torch's error when memory runs out."""
        if any(tensor.is_cuda for tensor in batch):
            wait_for_current(self._stream)
        with StreamGuard(self._stream):  # and on its device: threads start on device 0
            host = pinned(batch)
            moved = host.to(self._device, non_blocking=True)
            arrived = GpuEvent(timing=False, device=self._device)
            arrived.record_on(self._stream)
        self._wait_for_room(arrived, sum(t.nbytes for t in host if not t.is_cuda))
        return Sent(moved, arrived)

    def _wait_for_room(self, arrived: GpuEvent, n_bytes: int) -> None:
        with self._lock:
            self._on_the_way.append((arrived, n_bytes))
            self._pinned_bytes += n_bytes
            while self._on_the_way and (
                self._pinned_bytes > self._max_pinned_bytes or self._on_the_way[0][0].is_complete()
            ):
                oldest, freed = self._on_the_way.popleft()
                oldest.synchronize()
                self._pinned_bytes -= freed

    def receive(self, sent: Sent) -> Batch:
        """Let the current stream wait for the copy; the host does not wait."""
        current = torch.cuda.current_stream(self._device)
        if sent.arrived is not None and sent.arrived.raw is not None:
            current.wait_event(sent.arrived.raw)
        for tensor in sent.batch:
            tensor.record_stream(current)  # or its memory could be reused while it is read here
        return sent.batch


def wait_for_current(stream: GpuStream) -> None:
    """Let later work of a stream wait for what this thread has launched on its GPU."""
    if stream.raw is not None:
        stream.raw.wait_stream(torch.cuda.current_stream(stream.device))


def pinned(batch: Batch) -> Batch:
    """Return the batch with what lies on the host in page-locked memory, itself if that is so."""
    on_host = {n: t for n, t in batch.as_dict().items() if not t.is_cuda and not t.is_pinned()}
    return batch.replace({n: t.pin_memory() for n, t in on_host.items()}) if on_host else batch


def transfer_to(device: torch.device, *, pin: bool, max_pinned_bytes: int) -> Transfer:
    """Return the fastest way for batches to a device."""
    if device.type == "cuda":
        return StreamTransfer(device, max_pinned_bytes)
    return PinningTransfer() if pin else HostTransfer(device)
