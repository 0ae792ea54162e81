"""Making an optimizer's step fit for a captured graph, or saying why it cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flodl.core.errors import ConfigError
from flodl.optim.implementation import has_fused_kernel, is_plain_cuda, place_state
from flodl.optim.mixin import OptimizerMixin
from flodl.optim.rates import separate_rates


@dataclass(frozen=True, slots=True)
class CaptureSupport:
    """Whether an optimizer's step can be part of a captured graph.

    Attributes:
        is_capturable: Whether it can.
        skips_on_device: Whether the step itself leaves everything as it is when a scaler found
            an infinity, without asking the host.
        reason: Why it cannot, empty if it can.
        hint: What would change that.
    """

    is_capturable: bool
    skips_on_device: bool = False
    reason: str = ""
    hint: str = ""


def capture_support(optimizer: torch.optim.Optimizer) -> CaptureSupport:
    """Return what ``prepare_for_capture`` can do for an optimizer; nothing is changed."""
    groups = [group for group in optimizer.param_groups if group["params"]]
    fused = has_fused_kernel(optimizer) and all(_may_fuse(group) for group in groups)
    why_not = _why_not_here(groups) or _why_not_this_kind(optimizer, fused=fused)
    if why_not is not None:
        reason, hint = why_not
        message = f"{type(optimizer).__name__}: {reason}"
        return CaptureSupport(is_capturable=False, reason=message, hint=hint)
    return CaptureSupport(is_capturable=True, skips_on_device=fused)


def _why_not_here(groups: list[dict[str, Any]]) -> tuple[str, str] | None:
    if any(parameter.device.type != "cuda" for group in groups for parameter in group["params"]):
        return "not all parameters are on a CUDA device", "move the model to the GPU first"
    if any(group.get("differentiable") for group in groups):
        return "it is differentiable", "build it without differentiable=True"
    return None


def _why_not_this_kind(optimizer: torch.optim.Optimizer, *, fused: bool) -> tuple[str, str] | None:
    if isinstance(optimizer, torch.optim.Adagrad):
        return "it counts its steps on the host", "use flodl.optim.CapturableAdagrad"
    if isinstance(optimizer, torch.optim.SGD) and not fused:
        return (
            "it reads its learning rate on the host unless it is fused",
            "leave fused and foreach open, and use dense floating parameters",
        )
    if not fused and not all("capturable" in group for group in optimizer.param_groups):
        return "it has no setting 'capturable'", "use one of flodl.optim's optimizers"
    return None


def prepare_for_capture(optimizer: torch.optim.Optimizer) -> None:
    """Set the implementation, move step counters and make learning rates tensors, for capture.

    Learning rates become 0-d float32 tensors on the device of their group, and stay these
    tensors: ``set_lr`` writes into them. State that exists is kept. The eager step of a prepared
    optimizer gives the same numbers as the captured one.

    Raises:
        ConfigError: The step cannot be captured; the message says why.
    """
    support = capture_support(optimizer)
    if not support.is_capturable:
        raise ConfigError(support.reason, hint=support.hint)
    if isinstance(optimizer, OptimizerMixin):
        optimizer.resolve_implementation()
    for group in optimizer.param_groups:
        if group["params"]:
            _choose(optimizer, group)
            _make_rate_a_tensor(group)
            place_state(optimizer, group)
    separate_rates(optimizer.param_groups)
    if support.skips_on_device and not isinstance(optimizer, OptimizerMixin):
        # torch's own switch, which its constructor sets for fused=True only.
        setattr(optimizer, "_step_supports_amp_scaling", True)  # noqa: B010


def _make_rate_a_tensor(group: dict[str, Any]) -> None:
    rate, device = group["lr"], group["params"][0].device
    fits = isinstance(rate, Tensor) and rate.dtype == torch.float32 and rate.dim() == 0
    if not fits or rate.device != device:
        group["lr"] = torch.tensor(float(rate), dtype=torch.float32, device=device)


def _choose(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    if "capturable" in group:
        group["capturable"] = True
    if has_fused_kernel(optimizer) and _may_fuse(group):
        group["fused"], group["foreach"] = True, False
    elif not group.get("fused") and "foreach" in group:
        group["foreach"] = True


def _may_fuse(group: dict[str, Any]) -> bool:
    # fused=False may be the user's word; foreach=True is, unless we chose it ourselves.
    asked_otherwise = group.get("fused") is False or (
        bool(group.get("foreach")) and not group.get("fused")
    )
    return not asked_otherwise and is_plain_cuda(group["params"])
