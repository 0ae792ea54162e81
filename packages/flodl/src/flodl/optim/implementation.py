"""Which implementation an optimizer's step runs: fused kernels, foreach, or a loop."""

from __future__ import annotations

import functools
import logging
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.optimizer import _default_to_fused_or_foreach

from flodl.core.log import warn_once

_logger = logging.getLogger(__name__)

Implementation = Literal["fused", "foreach", "for-loop"]
IMPLEMENTATION_FLAGS = ("capturable", "differentiable", "foreach", "fused")
"""Group settings that choose how a step is computed, never what it computes."""

_FUSED_KERNELS = {
    torch.optim.SGD: "_fused_sgd_",
    torch.optim.Adam: "_fused_adam_",
    torch.optim.AdamW: "_fused_adamw_",
    torch.optim.Adagrad: "_fused_adagrad_",
}
_FUSED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HOST_STATE = ("step", "mu_product")
"""State that torch keeps on the host unless the step is fused or capturable."""


def has_fused_kernel(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the installed torch has a fused CUDA kernel for this optimizer."""
    for kind, kernel in _FUSED_KERNELS.items():
        if isinstance(optimizer, kind):
            registered = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 - no public question
            return bool(registered(f"aten::{kernel}", "CUDA")) and (
                kind is not torch.optim.Adagrad
                or (torch.cuda.is_available() and _steps_fused(kind))
            )
    return False


@functools.cache
def _steps_fused(kind: type[torch.optim.Optimizer]) -> bool:
    """Return whether a fused step on a GPU works, by taking one on a single number.

    Torch 2.11 registers a kernel for Adagrad on CUDA and its optimizer refuses to use it.
    """
    parameter = nn.Parameter(torch.zeros(1, device="cuda"))
    parameter.grad = torch.zeros_like(parameter)
    try:
        kind([parameter], fused=True).step()  # type: ignore[call-arg] # all kinds asked have it
    except RuntimeError as error:
        _logger.info("%s has no fused step on this GPU: %s", kind.__name__, error)
        return False
    return True


def is_plain_cuda(parameters: list[Tensor]) -> bool:
    """Return whether all are dense floating tensors on CUDA devices, gradients included."""
    return bool(parameters) and all(
        parameter.device.type == "cuda"
        and parameter.dtype in _FUSED_DTYPES
        and type(parameter) in (Tensor, nn.Parameter)
        and parameter.layout is torch.strided
        and (parameter.grad is None or parameter.grad.layout is torch.strided)
        for parameter in parameters
    )


def choose_implementation(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """Set the fastest implementation on a group whose user left the choice open.

    Groups that are not wholly on CUDA keep torch's own default.
    """
    if not is_plain_cuda(group["params"]) or group["differentiable"]:
        return
    if group.get("fused") is None and not group["foreach"] and has_fused_kernel(optimizer):
        group["fused"] = True
        group["foreach"] = False
    elif group["foreach"] is None and not group.get("fused"):
        group["foreach"] = True


def place_state(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """Move a group's state to where its implementation reads it.

    Needed when parameters moved, or the implementation was chosen, after the state had been made.
    """
    on_device = bool(group.get("fused") or group.get("capturable"))
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        for key, value in state.items():
            if not isinstance(value, Tensor):
                continue
            if key in HOST_STATE:
                place = (parameter.device, torch.float32) if on_device else ("cpu", value.dtype)
                state[key] = value.to(*place)
            elif value.device != parameter.device:
                state[key] = value.to(parameter.device)


def implementation(optimizer: torch.optim.Optimizer) -> Implementation:
    """Return how the step of any torch optimizer is computed; of several groups, the slowest."""
    order: tuple[Implementation, ...] = ("for-loop", "foreach", "fused")
    found = {_of_group(group) for group in optimizer.param_groups if group["params"]}
    if len(found) > 1:
        warn_once(_logger, "optimizer groups use several implementations: %s", sorted(found))
    return next((name for name in order if name in found), "for-loop")


def _of_group(group: dict[str, Any]) -> Implementation:
    fused, foreach = group.get("fused"), group.get("foreach")
    if fused:
        return "fused"
    if fused is None and foreach is None and "foreach" in group:
        _, foreach = _default_to_fused_or_foreach(
            group["params"], group.get("differentiable", False)
        )
    return "foreach" if foreach else "for-loop"
