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
from flodl.engine.gradients import FlatGradients
from flodl.engine.oom import BatchSplit
from flodl.engine.skipping import NonFiniteGuard
from flodl.metrics.scalars import ScalarScope
from flodl.nn.autocast import autocast
from flodl.nn.clip import clip_grad_norm, clip_grad_value
from flodl.nn.precision import GradScaler
from flodl.optim.capture import CaptureSupport

Metrics = list[tuple[str, Any]]
_KNOWN_STEPS = (torch.amp.GradScaler.step, GradScaler.step)


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
        self.gradients: FlatGradients | None = None
        """Gradients that keep their place: for captured accumulation, and to be exchanged."""
        self.split = BatchSplit(self, is_on=config.splits_oom)
        """Computes loss and gradients where a batch may not fit into memory."""
        self.has_begun_backward = False
        """Whether gradients may have changed since someone set it to ``False``."""
        self._call = step_fn
        self.is_compiled = bool(config.compile)
        self._config = config
        self._device = device
        skips = config.on_nonfinite == "skip" and scaler is None
        self.guard = NonFiniteGuard(
            optimizer,
            device,
            skips=skips,
            counts=skips or config.flags_nonfinite,
            asks_host=not support.is_capturable,
            in_kernel=support.skips_on_device,
        )
        steps_as_torch = scaler is None or type(scaler).step in _KNOWN_STEPS
        self._skips_with_mask = (
            (skips or (scaler is not None and steps_as_torch))
            and support.is_capturable
            and not support.skips_on_device
        )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The optimizer's parameters; groups may be added during training."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def forward_backward(
        self, batch: Batch, *, starts_window: bool, share: float = 1.0
    ) -> tuple[Tensor, Scalars]:
        """Compute loss and gradients; return the loss, detached, and the scalars returned with it.

        Args:
            batch: The batch, or a part of it.
            starts_window: Whether gradients start from zero.
            share: What the gradients are multiplied by; the loss is not.

        Raises:
            StepContractError: The step function returned no differentiable scalar.
        """
        result = self._forward(batch)
        returned: Scalars = {}
        if isinstance(result, tuple):
            result, returned = unpack(result)
        loss = checked_loss(result)
        if starts_window and self.gradients is None:
            self.optimizer.zero_grad(set_to_none=True)
        scaled = loss if self._config.accumulate == 1 else loss / self._config.accumulate
        if share != 1.0:
            scaled = scaled * share
        if self.scaler is not None:
            scaled = self.scaler.scale(scaled)
        self.has_begun_backward = True
        scaled.backward()
        self.state.close()
        loss = loss.detach()
        self.guard.saw(loss, starts_window=starts_window)
        return loss, returned

    def _forward(self, batch: Batch) -> StepResult:
        if self._config.amp is None:
            return self._call(self.model, batch)
        # The cache is emptied where the outermost context ends, inside the capture as well; only
        # in a context of the user's it would hold casts across replays.
        cached = not torch.is_autocast_enabled(self._device.type)
        with autocast(self._config.amp, self._device, cache_enabled=cached):
            return self._call(self.model, batch)

    def settle(self) -> None:
        """Bring the gradients into flat buffers: new ones where their parameters have changed."""
        parameters = self.parameters
        if self.gradients is None or not self.gradients.fits(parameters):
            names = {id(p): name for name, p in self.model.named_parameters()}
            self.gradients = FlatGradients(parameters, names)

    def flag(self) -> None:
        """Tell the other ranks, in the flat buffers, whether this one must not step."""
        flat = self.gradients
        if self._config.reduce is None or flat is None or flat.flag is None:
            return
        if self.guard.skips:
            flat.flag.copy_(self.guard.found(flat.buckets))

    def exchange(self) -> None:
        """Let the reducer exchange the gradients that lie in the flat buffers."""
        if self._config.reduce is not None and self.gradients is not None:
            self._config.reduce(self.gradients)

    def end_window(self) -> Tensor | None:
        """Exchange the gradients where a reducer is given, and update."""
        if self._config.reduce is not None:
            self.settle()
            self.flag()
            self.exchange()
        return self.update()

    def follow(self) -> None:
        """Update with gradients that the reducer brings; this rank's own are zeros."""
        for parameter in self.parameters:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.settle()
        assert self.gradients is not None
        self.gradients.clear(self.parameters)
        self.exchange()
        self.update()

    def drop_window(self) -> None:
        """Forget the gradients of a window that cannot be finished."""
        if self.gradients is not None:
            self.gradients.clear(self.parameters)
        else:
            self.optimizer.zero_grad(set_to_none=True)
        if self.scaler is not None:
            self.scaler._per_optimizer_states.clear()  # noqa: SLF001 - torch has no public way

    def update(self) -> Tensor | None:
        """Clip, step, adapt the scale; return the norm before clipping where there is a limit."""
        config, scaler, parameters = self._config, self.scaler, self.parameters
        if self.gradients is not None:
            self.settle()
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        found = self._found(parameters) if self.guard.skips else None
        if config.clip_value is not None:
            clip_grad_value(parameters, config.clip_value)
        norm = None
        if config.max_grad_norm is not None:
            norm = clip_grad_norm(
                parameters, config.max_grad_norm, scaler=scaler, optimizer=self.optimizer
            )
        if scaler is not None:
            self._scaled_step(scaler)
        elif found is not None:
            self.guard.step(found)
        else:
            self.optimizer.step()
        if self.gradients is not None:
            self.gradients.clear(parameters)
        return norm

    def _found(self, parameters: list[nn.Parameter]) -> Tensor:
        if self.gradients is not None and self.gradients.flag is not None:
            found = self.guard.found(self.gradients.buckets)
            return torch.maximum(found, (self.gradients.flag > 0).float())
        return self.guard.found([p.grad for p in parameters if p.grad is not None])

    def _scaled_step(self, scaler: torch.amp.GradScaler) -> None:
        if self.guard.lacks_state():
            if not self._found_by(scaler).item():
                scaler.step(self.optimizer)
        elif self._skips_with_mask:
            self.guard.masked_step(self._found_by(scaler))
        else:
            scaler.step(self.optimizer)
        scaler.update()

    def _found_by(self, scaler: torch.amp.GradScaler) -> Tensor:
        stage = scaler._per_optimizer_states[id(self.optimizer)]  # noqa: SLF001 - torch has no public way
        return torch.stack(list(stage["found_inf_per_device"].values())).sum() > 0

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, factor)

    def has_optimizer_state(self) -> bool:
        """Return whether a step that may be skipped can be taken without asking the host."""
        return (self.scaler is None and not self.guard.skips) or not self.guard.lacks_state()

    def abandon(self) -> None:
        """Clean up after a step that broke off in the middle."""
        self.state.unpin()
        if self.gradients is not None:
            self.gradients.repair()  # they hold what earlier batches of the window gave
        else:
            for parameter in self.parameters:
                parameter.grad = None
        for name in ("grad_scale", "found_inf"):
            if hasattr(self.optimizer, name):
                delattr(self.optimizer, name)
        if self.scaler is not None:
            self.scaler._per_optimizer_states.clear()  # noqa: SLF001 - torch has no public way


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
