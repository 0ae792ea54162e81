"""One training step: learning rate, forward, loss, backward, clipping, optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.data import Batch
from flodl.engine.config import StepConfig, TrainStepFn
from flodl.metrics.scalars import ScalarScope


class Stepper:
    """Takes optimizer steps on one model.

    Args:
        model: The model in training.
        optimizer: Its optimizer.
        train_step: ``(model, batch) -> loss`` or ``-> (loss, scalars)``.
        config: Clipping and schedule.
        scalars: Where recorded and returned scalars are gathered.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        train_step: TrainStepFn,
        config: StepConfig,
        scalars: ScalarScope,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self._train_step = train_step
        self._config = config
        self._scalars = scalars
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.global_step = 0
        """Optimizer steps taken so far."""

    @property
    def current_lr(self) -> float:
        """Learning rate of the first group, as the last step used it."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self, batch: Batch) -> torch.Tensor:
        """Take one step and return its loss: 0-d, detached, still on its device.

        Raises:
            StepContractError: The step function returned no differentiable scalar.
        """
        self._apply_schedule()
        loss = self._loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._clip()
        self.optimizer.step()
        self.global_step += 1
        return loss.detach()

    def _apply_schedule(self) -> None:
        scheduler = self._config.scheduler
        if scheduler is None:
            return
        rate = scheduler.lr(self.global_step)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _loss(self, batch: Batch) -> torch.Tensor:
        result = self._train_step(self.model, batch)
        if isinstance(result, tuple):
            loss, scalars = _unpack(result)
            for name, value in scalars.items():
                self._scalars.add(name, value)
        else:
            loss = result
        return _checked_loss(loss)

    def _clip(self) -> None:
        if self._config.clip_value is not None:
            nn.utils.clip_grad_value_(self._parameters, self._config.clip_value)
        if self._config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._config.max_grad_norm)


def _unpack(result: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    if len(result) != 2 or not isinstance(result[1], dict):
        raise StepContractError(
            f"train step returned a tuple of {len(result)}: "
            f"({', '.join(type(part).__name__ for part in result)})",
            hint="return the loss alone, or (loss, {name: scalar})",
        )
    return result[0], result[1]


def _checked_loss(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise StepContractError(
            f"train step returned {type(loss).__name__}, not a tensor",
            hint="end the step function with `return loss`",
        )
    if loss.numel() != 1:
        raise StepContractError(
            f"train step returned a {loss.dtype} tensor of shape {tuple(loss.shape)}; "
            "a loss has one element",
            hint="reduce it, for example with .mean()",
        )
    if not loss.requires_grad:
        raise StepContractError(
            f"train step returned a detached loss ({loss.dtype}, no gradient history)",
            hint="compute it from the model's output, without .detach(), .item() or no_grad",
        )
    return loss.reshape(())
