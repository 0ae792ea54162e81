"""A model's averaged tensors as one flat float32 buffer, and back in place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from flodl.core.errors import ConfigError

__all__ = ["Layout", "Slot", "copy_all"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor stands in the flat buffer."""

    name: str
    start: int
    shape: torch.Size

    @property
    def stop(self) -> int:
        """One past its last element."""
        return self.start + self.shape.numel()


@final
class Layout:
    """What of a model is averaged, in the model's order, each shared tensor once.

    Trainable parameters come first, then (optionally) extra tensors such as optimizer state, then
    the floating-point buffers that belong to the state dict. Frozen parameters are left out.
    ``num_batches_tracked`` counters travel apart, as exact numbers; other integer and bool buffers
    stay local.

    Args:
        model: Its parameters and buffers must keep their storage while the layout is in use.
        extra: Further tensors that are averaged like parameters, by name.
    """

    def __init__(self, model: nn.Module, extra: Mapping[str, Tensor] | None = None) -> None:
        parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        saved = model.state_dict().keys()
        buffers = {n: b for n, b in model.named_buffers() if n in saved}
        floating = {n: b for n, b in buffers.items() if b.is_floating_point()}
        _refuse_complex({**parameters, **buffers})
        self.parameters = tuple(_slots(parameters, 0))
        self.extra = tuple(_slots(extra or {}, _end(self.parameters, 0)))
        self.buffers = tuple(_slots(floating, _end(self.extra, _end(self.parameters, 0))))
        self.parameter_end = _end(self.parameters, 0)
        self.weighted_end = _end(self.extra, self.parameter_end)
        """Elements before it are averaged by work, the buffers behind it equally."""
        self.numel = _end(self.buffers, self.weighted_end)
        self._tensors = [*parameters.values(), *(extra or {}).values(), *floating.values()]
        self._staging: Tensor | None = None
        self._counters = {n: b for n, b in buffers.items() if n.endswith("num_batches_tracked")}

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots, in the buffer's order."""
        return (*self.parameters, *self.extra, *self.buffers)

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensors behind `slots`."""
        return self._tensors

    @property
    def counter_names(self) -> tuple[str, ...]:
        """Names of the counters."""
        return tuple(self._counters)

    @torch.no_grad()
    def flatten(self, out: Tensor) -> None:
        """Copy the model's values into a float32 buffer, widening or rounding as needed."""
        staging = self._staging_for(out)
        copy_all(self.views(staging), self._tensors)
        if staging is not out:
            out.copy_(staging)

    @torch.no_grad()
    def restore(self, flat: Tensor) -> None:
        """Copy a buffer's values into the model, in place."""
        staging = self._staging_for(flat)
        if staging is not flat:
            staging.copy_(flat)
        copy_all(self._tensors, self.views(staging))

    def _staging_for(self, flat: Tensor) -> Tensor:
        """Return a buffer on the model's device: one copy between devices, not one a tensor."""
        device = self._tensors[0].device if self._tensors else flat.device
        if flat.device == device:
            return flat
        if self._staging is None:
            self._staging = torch.empty(self.numel, device=device)
        return self._staging

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return the slots of a buffer as tensors of their shapes."""
        return [flat[slot.start : slot.stop].view(slot.shape) for slot in self.slots]

    def rebind(self, extra: Mapping[str, Tensor]) -> None:
        """Use these tensors as the extra ones, under the names and of the shapes of before.

        Raises:
            ConfigError: They are others.
        """
        if [(s.name, s.shape) for s in self.extra] != [(n, t.shape) for n, t in extra.items()]:
            raise ConfigError(
                "the optimizer's state has other tensors than when averaging began",
                hint="keep one optimizer with the same parameters throughout a run",
            )
        first = len(self.parameters)
        self._tensors[first : first + len(self.extra)] = extra.values()

    def counters(self) -> list[int]:
        """Return the counters' values."""
        return [int(counter.item()) for counter in self._counters.values()]

    @torch.no_grad()
    def set_counters(self, values: Sequence[int]) -> None:
        """Write the counters' values, in place."""
        for counter, value in zip(self._counters.values(), values, strict=True):
            counter.fill_(value)

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views of parameters and buffers in a buffer, by name."""
        slots = (*self.parameters, *self.buffers)
        return {slot.name: flat[slot.start : slot.stop].view(slot.shape) for slot in slots}

    def description(self) -> list[str]:
        """Return a line for each thing that travels, equal on all ranks that fit together."""
        kinds = [("parameter", self.parameters), ("state", self.extra), ("buffer", self.buffers)]
        lines = [
            f"{kind} {slot.name} {tuple(slot.shape)} {tensor.dtype}"
            for (kind, slot), tensor in zip(
                ((kind, slot) for kind, slots in kinds for slot in slots),
                self._tensors,
                strict=True,
            )
        ]
        return lines + [f"counter {name}" for name in self._counters]

    def signature(self) -> str:
        """Return a digest of the description."""
        return hashlib.sha256("\n".join(self.description()).encode()).hexdigest()


@torch.no_grad()
def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into tensors of the same shapes, in few kernels."""
    if targets:
        torch._foreach_copy_([t.detach() for t in targets], [s.detach() for s in sources])


def _slots(tensors: Mapping[str, Tensor], start: int) -> Iterator[Slot]:
    for name, tensor in tensors.items():
        yield Slot(name, start, tensor.shape)
        start += tensor.numel()


def _end(slots: Sequence[Slot], start: int) -> int:
    return slots[-1].stop if slots else start


def _refuse_complex(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_complex():
            raise ConfigError(
                f"{name} is {tensor.dtype}: averaging works on real numbers",
                hint="store it as two real parameters and view_as_complex in forward",
            )
