"""What a training run needs of a device when its data set is held there: estimate, then measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.core.units import format_bytes
from flodl.data.adapter import as_batch_dataset
from flodl.data.dataset import as_tensor, fields_of, item_reader
from flodl.data.prefetch import usable_bytes
from flodl.data.residency import host_memory
from flodl.data.sampler import whole_number
from flodl.device import (
    gpu_active_bytes,
    gpu_memory_info,
    gpu_peak_active_bytes,
    gpu_reset_peak_stats,
    parse_device,
)

if TYPE_CHECKING:
    from flodl.data.batch import Batch
    from flodl.data.dataset import AnyDataSet

OVERHEAD_BYTES = 400 << 20
ACTIVATION_COPIES = 32  # of a batch: a guess between a small MLP and a deep convolutional net


def _state_copies(name: str, group: Mapping[str, Any]) -> int | None:
    """Return how many copies of a group's parameters an optimizer keeps, ``None`` if unknown."""
    match name:
        case "SGD":
            return int(bool(group.get("momentum")))
        case "Adam" | "AdamW" | "RAdam" | "NAdam":
            return 3 if group.get("amsgrad") else 2
        case "RMSprop":
            return 1 + bool(group.get("momentum")) + bool(group.get("centered"))
        case "Adagrad" | "CapturableAdagrad":
            return 1
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResidentBudget:
    """Bytes that data, parameters, gradients, optimizer and activations take of a device.

    ``activation_estimate`` is a guess, until ``measure`` replaces it.

    Examples:
        >>> import torch
        >>> from flodl.data import ResidentBudget, TensorDataSet
        >>> model = torch.nn.Linear(100, 10)
        >>> data = TensorDataSet(torch.zeros(1000, 100))
        >>> budget = ResidentBudget.estimate(
        ...     data, model, torch.optim.Adam(model.parameters()), batch_size=50
        ... )
        >>> budget.data_bytes, budget.param_bytes, budget.optimizer_bytes
        (400000, 4040, 8080)
    """

    data_bytes: int
    param_bytes: int
    grad_bytes: int
    optimizer_bytes: int
    activation_estimate: int
    overhead_bytes: int
    available_bytes: int
    device: torch.device
    is_measured: bool = False

    @classmethod
    def estimate(
        cls,
        data: AnyDataSet | int,
        params: nn.Module | Iterable[torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
        batch_size: int,
        device: str | torch.device = "cpu",
    ) -> ResidentBudget:
        """Return the budget of a run that has not begun.

        Args:
            data: The data set, or its bytes.
            params: The model, or its parameters.
            optimizer: Its settings say how much state it will keep.
            batch_size: Rows of a batch.
            device: Where everything is to be held.

        Raises:
            ConfigError: An optimizer that is not one of flodl's seven, or a device that is not
                here.
        """
        where = parse_device(device)
        rows = whole_number("batch_size", batch_size, least=1)
        length, sample = (1, data) if isinstance(data, int) else _size(data)
        tensors = list(params.parameters() if isinstance(params, nn.Module) else params)
        trained = sum(tensor.nbytes for tensor in tensors if tensor.requires_grad)
        per_batch = 0 if isinstance(data, int) else rows * sample
        return cls(
            data_bytes=length * sample,
            param_bytes=sum(tensor.nbytes for tensor in tensors),
            grad_bytes=trained,
            optimizer_bytes=0 if optimizer is None else _state_bytes(optimizer),
            activation_estimate=ACTIVATION_COPIES * per_batch,
            overhead_bytes=_overhead(where),
            available_bytes=_available(where),
            device=where,
        )

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return (
            self.data_bytes
            + self.param_bytes
            + self.grad_bytes
            + self.optimizer_bytes
            + self.activation_estimate
            + self.overhead_bytes
        )

    @property
    def headroom_bytes(self) -> int:
        """What is left; negative when it does not fit."""
        return self.available_bytes - self.total_bytes

    @property
    def fits(self) -> bool:
        """Whether it all fits."""
        return self.headroom_bytes >= 0

    def measure(self, step: Callable[[Batch], object], batch: Batch) -> ResidentBudget:
        """Return the budget with the activations of one step that is really done.

        Args:
            step: Computes the loss of a batch and calls ``backward``; it is run once.
            batch: On the device.

        Raises:
            ConfigError: The device is no GPU: nothing counts its peak.
        """
        if self.device.type != "cuda":
            raise ConfigError(f"measure on {self.device}: only a GPU counts the peak of its memory")
        torch.cuda.synchronize(self.device)
        before = gpu_active_bytes(self.device)
        gpu_reset_peak_stats(self.device)
        step(batch)
        torch.cuda.synchronize(self.device)
        peak = gpu_peak_active_bytes(self.device) - before
        # gradients that the step made first are in the peak, and counted on their own
        held = gpu_active_bytes(self.device) - before
        return replace(self, activation_estimate=max(0, peak - held), is_measured=True)

    def __str__(self) -> str:
        word = "measured" if self.is_measured else "estimated"
        rows = [
            ("data", self.data_bytes),
            ("parameters", self.param_bytes),
            ("gradients", self.grad_bytes),
            ("optimizer", self.optimizer_bytes),
            (f"activations ({word})", self.activation_estimate),
            ("overhead", self.overhead_bytes),
            ("total", self.total_bytes),
            ("available", self.available_bytes),
            ("headroom", self.headroom_bytes),
        ]
        return "\n".join(f"{name:<24}{_signed(count):>10}" for name, count in rows)


def _signed(count: int) -> str:
    return format_bytes(count) if count >= 0 else f"-{format_bytes(-count)}"


def _size(dataset: AnyDataSet) -> tuple[int, int]:
    """Return the number of samples, and the bytes of the first."""
    values = fields_of(item_reader(dataset)(0))[1]
    return len(as_batch_dataset(dataset)), sum(as_tensor(value).nbytes for value in values)


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    name, total = type(optimizer).__name__, 0
    for group in optimizer.param_groups:
        copies = _state_copies(name, group)
        if copies is None:
            raise ConfigError(
                f"optimizer {name}: how much state it keeps is not known",
                hint="give optimizer=None and add its bytes to data",
            )
        total += copies * sum(tensor.nbytes for tensor in group["params"] if tensor.requires_grad)
    return total


def _overhead(device: torch.device) -> int:
    """Return what the context and libraries of a device will take beyond what they have."""
    if device.type != "cuda":
        return 0
    memory = gpu_memory_info(device)
    return max(0, OVERHEAD_BYTES - (memory.used - memory.reserved))


def _available(device: torch.device) -> int:
    if device.type == "cuda":
        return usable_bytes(gpu_memory_info(device))
    used, total = host_memory()
    return total - used
