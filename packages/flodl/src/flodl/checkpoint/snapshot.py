"""A point-in-time copy of a model, for a background thread to save while training goes on."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from flodl.checkpoint.format import canonical_json
from flodl.checkpoint.save import save_checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSnapshot:
    """A model as it was at one moment, on the CPU; training does not change it.

    Attributes:
        params: Parameters by name; tied ones share memory, as in the model.
        buffers: Persistent buffers by name.
        metrics: What was given to ``snapshot_cpu``.
        epoch: What was given to ``snapshot_cpu``.
        structural_hash: The model's, empty if it has none.
        optimizer_state: ``state_dict()`` of the optimizer, if one was given.
    """

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]
    metrics: dict[str, float | Tensor]
    epoch: int | None
    structural_hash: str
    optimizer_state: dict[str, Any] | None
    _events: tuple[torch.cuda.Event, ...] = ()
    _staged: list[Tensor] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether all values have arrived from the GPU; always true for a model on the CPU."""
        return all(event.query() for event in self._events)

    def wait(self) -> None:
        """Block until all values have arrived."""
        for event in self._events:
            event.synchronize()
        self._staged.clear()

    def save_file(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint of the model, with its hash; epoch and metrics are in its ``meta``.

        Waits first. The file is replaced in one step, and compressed if it ends in ``.gz``.
        Metrics that are not finite are stored as null.

        Raises:
            CheckpointError: The file cannot be written.
        """
        self.wait()
        metrics = {name: float(value) for name, value in self.metrics.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        save_checkpoint(
            path,
            {**self.params, **self.buffers},
            hash=self.structural_hash,
            meta={"epoch": self.epoch, "metrics": finite},
            extra={"fdl.buffers": canonical_json(sorted(self.buffers))},
        )


def snapshot_cpu(
    module: nn.Module,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    metrics: Mapping[str, float | Tensor] | None = None,
    epoch: int | None = None,
) -> ModelSnapshot:
    """Return a copy of a model, and of an optimizer's state, that background threads may use.

    Values on a GPU are first copied on the GPU, where memory allows it, and go to the CPU on a
    stream of their own; the host does not wait. Without that memory the training stream waits for
    the copy. It belongs between steps, captured ones too.
    """
    copier = _Copier()
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    state: dict[str, Any] = module.state_dict(keep_vars=True)
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    optimizer_state = None if optimizer is None else optimizer.state_dict()
    copier.collect([tensors, optimizer_state, dict(metrics or {})])
    copier.start()
    return ModelSnapshot(
        params={n: copier.copied(t) for n, t in tensors.items() if n in parameters},
        buffers={n: copier.copied(t) for n, t in tensors.items() if n not in parameters},
        metrics=copier.copied(dict(metrics or {})),
        epoch=epoch,
        structural_hash=str(getattr(module, "structural_hash", "")),
        optimizer_state=copier.copied(optimizer_state),
        _events=tuple(copier.events),
        _staged=copier.staged,
    )


class TensorCopy:
    """Named tensors as they are now, on the CPU, for a background thread to use.

    Tensors of one memory share one in the copy as well. As with :func:`snapshot_cpu`, the host does
    not wait for a GPU.

    Args:
        tensors: What to copy.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        copier = _Copier()
        copier.collect(tensors)
        copier.start()
        self._tensors: dict[str, Tensor] = copier.copied(tensors)
        self._events, self._staged = copier.events, copier.staged

    def tensors(self) -> dict[str, Tensor]:
        """Return the copies, once all values have arrived."""
        for event in self._events:
            event.synchronize()
        self._staged.clear()
        return self._tensors


class _Copier:
    """Copies tensors to the CPU, each memory once, all of one GPU together."""

    def __init__(self) -> None:
        self.events: list[torch.cuda.Event] = []
        self.staged: list[Tensor] = []
        self._copies: dict[tuple[object, ...], Tensor] = {}
        self._on_gpu: dict[torch.device, dict[tuple[object, ...], Tensor]] = {}

    def collect(self, value: Any) -> None:
        """Copy the tensors of the CPU in a nest of values, and remember those of GPUs."""
        if isinstance(value, Mapping):
            self.collect(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                self.collect(item)
        elif isinstance(value, Tensor):
            tensor, place = value.detach(), _place(value)
            if tensor.is_cuda:
                self._on_gpu.setdefault(tensor.device, {})[place] = tensor
            elif place not in self._copies:
                self._copies[place] = tensor.clone()

    def start(self) -> None:
        """Begin the copies from each GPU."""
        for device, tensors in self._on_gpu.items():
            self._start_on(device, tensors)

    def _start_on(self, device: torch.device, tensors: dict[tuple[object, ...], Tensor]) -> None:
        training, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        has_room = sum(t.nbytes for t in tensors.values()) < _free_bytes(device)
        if has_room:
            tensors = {place: tensor.clone() for place, tensor in tensors.items()}
            self.staged.extend(tensors.values())
        side.wait_stream(training)
        with torch.cuda.stream(side):
            for place, tensor in tensors.items():
                # Freed pinned memory is used again by torch's own cache for it.
                pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                self._copies[place] = pinned.copy_(tensor, non_blocking=True)
                tensor.record_stream(side)
            event = torch.cuda.Event()
            event.record(side)
        self.events.append(event)
        if not has_room:
            training.wait_event(event)

    def copied(self, value: Any) -> Any:
        """Return a nest of values with copies in place of its tensors."""
        if isinstance(value, Tensor):
            return self._copies[_place(value)]
        if isinstance(value, Mapping):
            return {key: self.copied(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.copied(item) for item in value)
        return value


def _place(tensor: Tensor) -> tuple[object, ...]:
    if tensor.numel() == 0:
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def _free_bytes(device: torch.device) -> int:
    """Return what can be allocated, cached blocks included, less a tenth in reserve."""
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(0.9 * (free + cached))
