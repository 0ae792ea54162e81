"""Settings of the step and of the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.data import Batch

Scalars = dict[str, Any]
StepResult = torch.Tensor | tuple[torch.Tensor, Scalars]
TrainStepFn = Callable[[Any, Batch], StepResult]
"""``(model, batch) -> loss`` or ``-> (loss, {name: scalar})``; the loss has one element."""

ModelFactory = Callable[[torch.device], nn.Module]
OptimFactory = Callable[[Any], torch.optim.Optimizer]
NonFinitePolicy = Literal["raise", "warn"]


class Scheduler(Protocol):
    """A learning rate as a pure function of the step."""

    def lr(self, step: int) -> float:
        """Return the learning rate of optimizer step ``step``, counted from 0."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StepConfig:
    """How one step treats its gradients and its loss."""

    max_grad_norm: float | None = None
    """Scale gradients so that their joint 2-norm is at most this."""
    clip_value: float | None = None
    """Clamp each gradient element to plus or minus this."""
    scheduler: Scheduler | None = None
    """Sets the learning rate of every group before each step."""
    on_nonfinite: NonFinitePolicy = "raise"

    def __post_init__(self) -> None:
        for name in ("max_grad_norm", "clip_value"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}={value!r}: must be a positive number")
        if self.on_nonfinite not in ("raise", "warn"):
            raise ConfigError(f'on_nonfinite={self.on_nonfinite!r}: must be "raise" or "warn"')
        if self.scheduler is not None and not callable(getattr(self.scheduler, "lr", None)):
            raise ConfigError(f"scheduler={self.scheduler!r}: must have a method lr(step) -> float")
