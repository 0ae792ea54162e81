"""Loss scaling for float16, and casting parameters in place."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from flodl.core.log import warn_once
from flodl.optim import optimizers_with_state_for
from flodl.optim.implementation import HOST_STATE

_logger = logging.getLogger(__name__)


class StepResult:
    """Whether an optimizer step was taken, known to the host only when it asks."""

    def __init__(self, found_inf: list[Tensor]) -> None:
        self._found_inf = found_inf

    @property
    def taken(self) -> bool:
        """True when all gradients were finite; waits for the GPU."""
        return not any(bool(found) for found in self._found_inf)

    def __bool__(self) -> bool:
        return self.taken


class GradScaler(torch.amp.GradScaler):
    """torch's gradient scaler with shorter argument names and a step that tells what it did.

    The order is: ``scale(loss).backward()``, ``unscale_(optimizer)``, clip, ``step(optimizer)``,
    ``update()``.

    Args:
        init_scale: The first scale.
        growth: What the scale is multiplied by after ``interval`` steps in a row were taken.
        backoff: What it is multiplied by after a step was skipped.
        interval: Number of those steps.
        enabled: ``False`` makes every method pass through.
        device: Device type; by default ``"cuda"`` where torch has it, else ``"cpu"``.
    """

    state_kind: ClassVar[str] = "grad_scaler"

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        *,
        enabled: bool = True,
        device: str | None = None,
    ) -> None:
        if not init_scale > 0:
            raise ValueError(f"GradScaler(init_scale={init_scale!r}): must be positive")
        if not growth > 1:
            raise ValueError(f"GradScaler(growth={growth!r}): must be above 1")
        if not 0 < backoff < 1:
            raise ValueError(f"GradScaler(backoff={backoff!r}): must be above 0 and below 1")
        if interval < 1:
            raise ValueError(f"GradScaler(interval={interval!r}): must be at least 1")
        super().__init__(
            device or ("cuda" if torch.cuda.is_available() else "cpu"),
            init_scale,
            growth,
            backoff,
            interval,
            enabled,
        )

    @property
    def scale_factor(self) -> float:
        """The current scale; waits for the GPU."""
        return float(self.get_scale())

    def step(  # type: ignore[override] # torch returns what optimizer.step() does
        self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> StepResult:
        """Step unless a gradient is infinite or NaN; the result knows which."""
        super().step(optimizer, *args, **kwargs)
        if not self.is_enabled():
            return StepResult([])
        state = self._per_optimizer_states[id(optimizer)]
        found: dict[torch.device, Tensor] = state["found_inf_per_device"]
        return StepResult(list(found.values()))


def has_unscaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a scaler has divided the optimizer's gradients by its scale in this step."""
    if not scaler.is_enabled():
        return True
    stages = scaler._per_optimizer_states  # noqa: SLF001 - torch has no public question
    return id(optimizer) in stages and stages[id(optimizer)]["stage"].name == "UNSCALED"


def scaler_for(
    dtype: torch.dtype | None, scaler: torch.amp.GradScaler | None
) -> torch.amp.GradScaler | None:
    """Return the scaler to train with at an autocast dtype, and say so when that is a surprise.

    bfloat16 has the range of float32 and needs none; float16 without one underflows.
    """
    if dtype == torch.bfloat16 and scaler is not None and scaler.is_enabled():
        _logger.info("bfloat16 needs no gradient scaler; the one given is not used")
        return None
    if dtype == torch.float16 and scaler is None:
        warn_once(
            _logger, "float16 without a gradient scaler: small gradients become 0; use GradScaler()"
        )
    return scaler


def cast_parameters(
    target: nn.Module | Iterable[Tensor],
    dtype: torch.dtype,
    *,
    buffers: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> int:
    """Change the dtype of floating parameters and their gradients in place; return how many.

    The parameters stay the same objects, so optimizers keep them.

    Args:
        target: A module, or parameters.
        dtype: A floating dtype.
        buffers: Also cast the floating buffers of the module; they count too.
        optimizer: Also cast its state for these parameters.

    Raises:
        TypeError: ``dtype`` is not floating, or ``buffers`` is asked of something that has none.
    """
    if not dtype.is_floating_point:
        raise TypeError(f"cast_parameters(dtype={dtype}): must be a floating dtype")
    if buffers and not isinstance(target, nn.Module):
        raise TypeError("cast_parameters(buffers=True): only a module has buffers")
    tensors = list(target.parameters() if isinstance(target, nn.Module) else target)
    changed = [p for p in tensors if p.is_floating_point() and p.dtype != dtype]
    if optimizer is None and optimizers_with_state_for(changed):
        _logger.warning(
            "cast_parameters: an optimizer holds state of the old dtype for these parameters; "
            "pass it as optimizer= to cast the state too"
        )
    with torch.no_grad():
        for parameter in changed:
            _cast(parameter, dtype)
            if optimizer is not None:
                _cast_state(optimizer, parameter, dtype)
    return len(changed) + (_cast_buffers(target, dtype) if buffers else 0)  # type: ignore[arg-type] # checked above


def _cast(parameter: Tensor, dtype: torch.dtype) -> None:
    gradient, parameter.grad = parameter.grad, None  # a gradient must have the parameter's dtype
    parameter.data = parameter.data.to(dtype)
    if gradient is not None:
        parameter.grad = gradient.to(dtype)


def _cast_state(optimizer: torch.optim.Optimizer, parameter: Tensor, dtype: torch.dtype) -> None:
    state = optimizer.state.get(parameter, {})
    for key, value in state.items():
        # Step counters keep their precision.
        if isinstance(value, Tensor) and value.is_floating_point() and key not in HOST_STATE:
            state[key] = value.to(dtype)


def _cast_buffers(module: nn.Module, dtype: torch.dtype) -> int:
    buffers = [b for b in module.buffers() if b.is_floating_point() and b.dtype != dtype]
    for buffer in buffers:
        buffer.data = buffer.data.to(dtype)
    return len(buffers)
