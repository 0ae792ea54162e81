"""Clipping gradients, without waiting for a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from flodl.nn.precision import has_unscaled


def clip_grad_norm(
    params: nn.Module | Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    *,
    error_if_nonfinite: bool = False,
    scaler: torch.amp.GradScaler | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Tensor:
    """Scale gradients so that their joint norm is at most ``max_norm``; return what it was.

    The result is 0-d and stays on its device: ``float()`` of it waits for the GPU. Parameters
    without gradients are left out; with none at all the norm is 0.

    Args:
        params: A module or parameters.
        max_norm: The largest norm.
        norm_type: The p of the p-norm, or infinity.
        error_if_nonfinite: Raise when the norm is NaN or infinite, which waits for the GPU.
        scaler: The gradient scaler in use: it must have unscaled these gradients.
        optimizer: The optimizer that it unscaled them for.

    Raises:
        ValueError: ``max_norm`` is not positive.
        RuntimeError: The gradients are still scaled, or the norm is not finite and
            ``error_if_nonfinite`` is set.
    """
    _check_limit(max_norm, "clip_grad_norm", "max_norm")
    if scaler is not None:
        _check_unscaled(scaler, optimizer)
    parameters = _as_list(params)
    with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
    if not with_gradient:
        return torch.zeros((), device=parameters[0].device if parameters else None)
    return nn.utils.clip_grad_norm_(
        with_gradient, max_norm, norm_type, error_if_nonfinite=error_if_nonfinite
    )


def clip_grad_value(
    params: nn.Module | Tensor | Iterable[Tensor], max_val: float, *, return_max: bool = False
) -> Tensor | None:
    """Clamp each gradient element to plus or minus ``max_val``.

    With ``return_max`` the result is the largest absolute value before clipping, 0-d and on its
    device, else ``None``.

    Raises:
        ValueError: ``max_val`` is not positive.
    """
    _check_limit(max_val, "clip_grad_value", "max_val")
    parameters = _as_list(params)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        device = parameters[0].device if parameters else None
        return torch.zeros((), device=device) if return_max else None
    largest = nn.utils.get_total_norm(gradients, math.inf) if return_max else None
    nn.utils.clip_grad_value_(parameters, max_val)
    return largest


def _as_list(params: nn.Module | Tensor | Iterable[Tensor]) -> list[Tensor]:
    if isinstance(params, nn.Module):
        return list(params.parameters())
    return [params] if isinstance(params, Tensor) else list(params)


def _check_limit(value: float, call: str, name: str) -> None:
    if not value > 0:
        raise ValueError(f"{call}({name}={value!r}): must be positive")


def _check_unscaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer | None) -> None:
    if optimizer is None:
        raise ValueError("clip_grad_norm(scaler=...): needs the optimizer= it unscaled for as well")
    if not has_unscaled(scaler, optimizer):
        raise RuntimeError(
            "clip_grad_norm: the gradients are still multiplied by the loss scale; "
            "call scaler.unscale_(optimizer) between backward and clipping"
        )
