"""What a step computes: one code path for eager steps and for capture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flodl.core.errors import StepContractError
from flodl.data import Batch
from flodl.engine.cells import StepState
from flodl.engine.config import Scalars, StepConfig, StepResult, TrainStepFn
from flodl.engine.fallback import CaptureAbandoned, CaptureReason, ReasonCode
from flodl.metrics.scalars import ScalarScope
from flodl.nn.autocast import autocast
from flodl.nn.clip import clip_grad_norm, clip_grad_value
from flodl.optim.capture import CaptureSupport

Metrics = list[tuple[str, Any]]


class StepScope(ScalarScope):
    """Gathers the scalars of one step, in order, so that they can travel with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: Metrics = []

    def add(self, name: str, value: Any) -> None:
        """Add one value under ``name``.

        Raises:
            TypeError: ``value`` is neither a number nor a tensor of one element.
        """
        if isinstance(value, Tensor) and value.numel() == 1:
            self.recorded.append((name, value.detach().reshape(())))
        else:
            super().add(name, value)  # checks the value
            self.recorded.append((name, float(value)))

    def take(self, returned: Scalars) -> Metrics:
        """Return what was recorded, and the scalars returned with the loss, and start afresh."""
        for name, value in returned.items():
            self.add(name, value)
        recorded, self.recorded = self.recorded, []
        self.drain()
        return recorded


class StepBody:
    """Forward, loss, backward; and clipping, optimizer, gradient scale.

    Args:
        model: The model, compiled or not.
        optimizer: Its optimizer.
        step_fn: The step function.
        config: Clipping, precision, accumulation.
        support: What a captured graph can do with the optimizer.
        scaler: The gradient scaler in use.
        device: Where the parameters are.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        step_fn: TrainStepFn,
        config: StepConfig,
        support: CaptureSupport,
        scaler: torch.amp.GradScaler | None,
        device: torch.device,
    ) -> None:
        self.model: nn.Module = model
        """What the step function gets."""
        self.optimizer = optimizer
        self.state = StepState(model)
        self.scaler = scaler
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.static_gradients: list[tuple[nn.Parameter, Tensor]] | None = None
        """Gradients that keep their place, where captured steps accumulate into them."""
        self._call = step_fn
        self.is_compiled = bool(config.compile)
        self._config = config
        self._device = device
        self._skips_with_mask = scaler is not None and (
            support.is_capturable and not support.skips_on_device
        )

    def forward_backward(self, batch: Batch, *, starts_window: bool) -> tuple[Tensor, Scalars]:
        """Compute loss and gradients; return the loss, detached, and the scalars returned with it.

        Raises:
            StepContractError: The step function returned no differentiable scalar.
        """
        result = self._forward(batch)
        returned: Scalars = {}
        if isinstance(result, tuple):
            result, returned = unpack(result)
        loss = checked_loss(result)
        if starts_window and self.static_gradients is None:
            self.optimizer.zero_grad(set_to_none=True)
        scaled = loss if self._config.accumulate == 1 else loss / self._config.accumulate
        if self.scaler is not None:
            scaled = self.scaler.scale(scaled)
        scaled.backward()
        self.state.close()
        return loss.detach(), returned

    def _forward(self, batch: Batch) -> StepResult:
        if self._config.amp is None:
            return self._call(self.model, batch)
        # The cache is emptied where the outermost context ends, inside the capture as well; only
        # in a context of the user's it would hold casts across replays.
        cached = not torch.is_autocast_enabled(self._device.type)
        with autocast(self._config.amp, self._device, cache_enabled=cached):
            return self._call(self.model, batch)

    def update(self) -> Tensor | None:
        """Clip, step, adapt the scale; return the norm before clipping where there is a limit."""
        config, scaler = self._config, self.scaler
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if config.clip_value is not None:
            clip_grad_value(self.parameters, config.clip_value)
        norm = None
        if config.max_grad_norm is not None:
            norm = clip_grad_norm(self.parameters, config.max_grad_norm)
        if scaler is None:
            self.optimizer.step()
        else:
            if self._skips_with_mask:
                self._masked_step(scaler)
            else:
                scaler.step(self.optimizer)
            scaler.update()
        if self.static_gradients is not None:
            self._clear_gradients(self.static_gradients)
        return norm

    def _clear_gradients(self, static: list[tuple[nn.Parameter, Tensor]]) -> None:
        with torch.no_grad():
            torch._foreach_zero_([gradient for _, gradient in static])
        if len(static) < len(self.parameters):
            keep = {id(parameter) for parameter, _ in static}
            for parameter in self.parameters:
                if id(parameter) not in keep:
                    parameter.grad = None

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, factor)

    def _masked_step(self, scaler: torch.amp.GradScaler) -> None:
        """Step, and put everything back where a gradient was infinite; the host asks nothing."""
        if not self.has_optimizer_state():
            scaler.step(self.optimizer)  # asks the host: only the first steps do
            return
        stage = scaler._per_optimizer_states[id(self.optimizer)]  # noqa: SLF001 - torch has no public way
        found = torch.stack(list(stage["found_inf_per_device"].values())).sum() > 0
        changing: list[Tensor] = [p for p in self.parameters if p.grad is not None]
        changing += optimizer_tensors(self.optimizer)
        before = [tensor.detach().clone() for tensor in changing]
        self.optimizer.step()
        with torch.no_grad():
            for tensor, old in zip(changing, before, strict=True):
                tensor.copy_(torch.where(found, old, tensor))

    def has_optimizer_state(self) -> bool:
        """Return whether no state would be made by the next step, as for momentum-free SGD."""
        if not self._skips_with_mask:
            return True
        return all(self.optimizer.state.get(p) for p in self.parameters if p.grad is not None)

    def abandon(self) -> None:
        """Clean up after a step that broke off in the middle."""
        self.state.unpin()
        if self.static_gradients is not None:
            self.repair_gradients()  # they hold what earlier batches of the window gave
        else:
            for parameter in self.parameters:
                parameter.grad = None
        for name in ("grad_scale", "found_inf"):
            if hasattr(self.optimizer, name):
                delattr(self.optimizer, name)
        if self.scaler is not None:
            self.scaler._per_optimizer_states.clear()  # noqa: SLF001 - torch has no public way

    def pin_gradients(self) -> None:
        """Give every gradient a tensor of zeros that keeps its place, for accumulation."""
        self.static_gradients = []
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)
                self.static_gradients.append((parameter, parameter.grad))

    def repair_gradients(self) -> None:
        """Bring gradients that were replaced back into their tensors."""
        for parameter, static in self.static_gradients or ():
            if parameter.grad is static:
                continue
            with torch.no_grad():
                static.zero_() if parameter.grad is None else static.copy_(parameter.grad)
            parameter.grad = static


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of an optimizer's state."""
    return [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]


def tensors_only(metrics: Metrics) -> list[tuple[str, Tensor]]:
    """Return the metrics, all tensors.

    Raises:
        CaptureAbandoned: One is a number, which a replay would repeat.
    """
    for name, value in metrics:
        if not isinstance(value, Tensor):
            raise CaptureAbandoned(number_recorded(name))
    return metrics


def number_recorded(name: str) -> CaptureReason:
    """Return the reason for a scalar that is a number of Python."""
    return CaptureReason.of(
        ReasonCode.HOOK_SIDE_EFFECT,
        f"the scalar {name!r} is recorded as a number",
        hint="record a tensor; a replay would repeat the number",
    )


def unpack(result: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    """Return loss and scalars of a step function's result.

    Raises:
        StepContractError: It is another tuple.
    """
    if len(result) != 2 or not isinstance(result[1], dict):
        raise StepContractError(
            f"train step returned a tuple of {len(result)}: "
            f"({', '.join(type(part).__name__ for part in result)})",
            hint="return the loss alone, or (loss, {name: scalar})",
        )
    return result[0], result[1]


def checked_loss(loss: Any) -> Tensor:
    """Return the loss as a 0-d tensor.

    Raises:
        StepContractError: It is no differentiable scalar.
    """
    if not isinstance(loss, Tensor):
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
