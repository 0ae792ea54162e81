"""What one process of the suite trains: a model, its batches, the settings that all arms share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ddp_bench.speed.arms import BY_NAME
from ddp_bench.speed.graphs import graph_of
from ddp_bench.speed.models import SpeedModel, find
from ddp_bench.speed.plain import EncoderLayer

BATCHES = 50
SMALL_BATCHES = 10
EMPTY_BATCHES = 200
"""Of the model with nothing to compute: its steps are too short to time a few."""

Dims = Literal["full", "small"]
Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What a process is to measure; travels to it as JSON.

    Attributes:
        model: Name of one of the models.
        arm: Name of one of the arms.
        variant: ``"weights"`` for attention that returns its weights, as torch's layer does
            unless told otherwise; ``""`` for the faster way.
        device: Type of the device.
        dims: Size of the model.
        precision: ``"fp32"`` is torch's default: products in float32, cuDNN may use TF32.
        threads: Of torch on the CPU.
        seed: Of weights and batches.
    """

    model: str
    arm: str
    variant: str = ""
    device: str = "cpu"
    dims: Dims = "small"
    precision: Precision = "fp32"
    threads: int = 1
    seed: int = 0

    @property
    def title(self) -> str:
        """Return what messages call it."""
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.model}/{self.arm}{variant}"


class Workload:
    """A model in training and its batches, on their device.

    Args:
        task: What is measured.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.device = torch.device(task.device)
        self.model_def: SpeedModel = find(task.model)
        is_small = task.dims == "small"
        size = self.model_def.small if is_small else self.model_def.full
        self.batch_size = size.inputs[0]
        self._pair = self.model_def.pair(is_small=is_small, seed=task.seed)
        count = EMPTY_BATCHES if task.model == "noop" else SMALL_BATCHES if is_small else BATCHES
        generator = torch.Generator().manual_seed(task.seed + 1)
        made = [size.batch(generator) for _ in range(count)]
        self.batches = [self._placed(pair) for pair in made]

    def _placed(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = pair
        placed = inputs.to(self.device)
        return placed, placed if targets is inputs else targets.to(self.device)

    def plain(self) -> nn.Module:
        """Return the model as written in plain torch."""
        model = self._pair[0].to(self.device)
        for module in model.modules():
            if isinstance(module, EncoderLayer):
                module.need_weights = self.task.variant == "weights"
        return model

    def graph(self) -> nn.Module:
        """Return the model as a graph; for few kernels where these are captured."""
        if BY_NAME[self.task.arm].is_captured:
            return graph_of(self._pair[0], batched=True).to(self.device)
        return self._pair[1].to(self.device)

    def loss(self, model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a batch, under autocast where the precision asks for it."""
        with self._autocast():
            return self.model_def.loss(model(inputs), targets)

    @property
    def amp(self) -> torch.dtype | None:
        """Return the type of autocast."""
        return torch.bfloat16 if self.task.precision == "bf16" else None

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.amp)

    def adam(self, parameters: Any, **options: Any) -> torch.optim.Adam:
        """Return the optimizer with the model's learning rate."""
        return torch.optim.Adam(parameters, lr=self.model_def.learning_rate, **options)


def apply_settings(task: Task) -> dict[str, Any]:
    """Set what torch keeps for the whole process, equally in all arms, and return it."""
    torch.set_num_threads(task.threads)
    is_tf32 = task.precision == "tf32"
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    torch.backends.cudnn.benchmark = find(task.model).has_autotune
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
    }
