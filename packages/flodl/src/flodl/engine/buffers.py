"""Fixed input tensors of a captured step, and bringing batches into them."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from flodl.data import Batch


def key_of(batch: Batch, *, training: bool) -> Hashable:
    """Return what a captured step is keyed by: everything but the numbers in the tensors."""
    return (
        batch.names,
        tuple([(t.shape, t.dtype, t.device, t.stride(), t.requires_grad) for t in batch]),
        tuple(batch.static.items()),
        training,
    )


def describe(batch: Batch) -> str:
    """Return a signature as a person reads it."""
    parts = [
        f"{name} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        for name, tensor in zip(batch.names, batch, strict=True)
    ]
    return ", ".join(parts + [f"{key}={value!r}" for key, value in batch.static.items()])


class StaticInputs:
    """Tensors on the GPU that keep their place; each batch is copied into them.

    A batch on the GPU is copied there. One in pinned memory goes to a staging slot on a stream of
    its own, while the step before is still running; two slots take turns.

    Args:
        batch: The first batch, on the GPU or the host.
        device: The GPU.
    """

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self._tensors = [_twin(tensor, device) for tensor in batch]
        self.batch = Batch(
            self._tensors,
            batch.names,
            epoch=batch.epoch,
            index=batch.index,
            static=batch.static,
            is_static=True,
        )
        self._device = device
        self._slots: list[_Slot] | None = None
        self._turn = 0

    def read(self) -> Batch:
        """Return what the step function gets: the fixed tensors."""
        return self.batch

    def again(self) -> None:
        """Make the next replay read the same batch; it does."""

    def tensors(self) -> list[Tensor]:
        """Return the tensors of these inputs that a step changes: none."""
        return []

    def fill(self, batch: Batch) -> None:
        """Bring a batch of the same signature into the tensors, without waiting."""
        sources = list(batch)
        if all(source.device.type == "cuda" for source in sources):
            torch._foreach_copy_(self._tensors, sources)
        elif all(source.is_pinned() for source in sources):
            torch._foreach_copy_(self._tensors, self._staged(sources))
            assert self._slots is not None
            self._slots[self._turn].read.record()
        else:
            for target, source in zip(self._tensors, sources, strict=True):
                target.copy_(source, non_blocking=True)
        self.batch.epoch, self.batch.index = batch.epoch, batch.index

    def _staged(self, sources: list[Tensor]) -> list[Tensor]:
        if self._slots is None:
            stream = torch.cuda.Stream(self._device)
            self._slots = [_Slot(self._tensors, stream) for _ in range(2)]
        self._turn = 1 - self._turn
        slot = self._slots[self._turn]
        slot.load(sources)
        torch.cuda.current_stream().wait_event(slot.loaded)
        return slot.tensors


class _Slot:
    """Staging memory for one batch."""

    def __init__(self, tensors: list[Tensor], stream: torch.cuda.Stream) -> None:
        self.tensors = [torch.empty_like(tensor) for tensor in tensors]
        self.loaded, self.read = torch.cuda.Event(), torch.cuda.Event()
        self._stream = stream
        self._sources: list[Tensor] = []
        stream.wait_stream(torch.cuda.current_stream())

    def load(self, sources: list[Tensor]) -> None:
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self.read)
            for target, source in zip(self.tensors, sources, strict=True):
                target.copy_(source, non_blocking=True)
            self.loaded.record()
        self._sources = sources  # pinned memory may not be reused before it was read


def _twin(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on the device, with the same strides where these are those of own memory."""
    if 0 in tensor.stride():
        return tensor.to(device, memory_format=torch.contiguous_format, copy=True)
    twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return twin.copy_(tensor)
