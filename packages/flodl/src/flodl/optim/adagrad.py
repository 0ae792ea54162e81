# ruff: noqa: SLF001 - torch's foreach functions have no public names
"""Adagrad whose whole step runs on the device, so that it can be captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from flodl.optim.mixin import OptimizerMixin
from flodl.optim.parameters import ParameterGroups


class CapturableAdagrad(OptimizerMixin, torch.optim.Optimizer):
    """Adagrad with its step counter on the device and the same state as torch's.

    torch's own form counts steps on the host: in a captured graph the counter stands still.

    Args:
        params: As for every optimizer of flodl.
        lr: A number, or a one-element tensor, which captured graphs read at each replay.
        lr_decay: The rate of step t, from 0, is ``lr / (1 + t * lr_decay)``.
        weight_decay: L2 penalty.
        initial_accumulator_value: Where the sums of squares begin.
        eps: Added to the root of the sum.
        maximize: Climb instead of descend.
    """

    state_class = "Adagrad"

    def __init__(
        self,
        params: ParameterGroups,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"lr is a tensor of {lr.numel()} elements; it must have one")
        settings = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        for name, value in settings.items():
            if not value >= 0.0:
                raise ValueError(f"{name}={value!r}: must not be negative")
        flags = {"foreach": True, "capturable": True, "differentiable": False}
        super().__init__(params, {**settings, "maximize": maximize, **flags})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; return what ``closure`` returns, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        for parameter in parameters:
            if parameter.grad.layout is not torch.strided:
                raise RuntimeError(
                    "CapturableAdagrad has no sparse step: use flodl.optim.Adagrad, or "
                    "Embedding(sparse=False)"
                )
            self._begin_state(parameter, group["initial_accumulator_value"])
        if not parameters:
            return
        lists = torch.optim.Optimizer._group_tensors_by_device_and_dtype(
            [
                cast("list[Tensor | None]", [_real(parameter) for parameter in parameters]),
                [_real(parameter.grad) for parameter in parameters],
                [_real(self.state[parameter]["sum"]) for parameter in parameters],
                [self.state[parameter]["step"] for parameter in parameters],
            ]
        )
        for columns, _ in lists.values():
            adagrad_update(
                *cast("list[list[Tensor]]", columns),
                lr=group["lr"],
                lr_decay=group["lr_decay"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=group["maximize"],
            )

    def _begin_state(self, parameter: Tensor, initial: float) -> None:
        state = self.state[parameter]
        if not state:
            value = complex(initial, initial) if parameter.is_complex() else initial
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["sum"] = torch.full_like(parameter, value, memory_format=torch.preserve_format)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def adagrad_update(  # noqa: PLR0913 - the formula has this many symbols
    parameters: list[Tensor],
    gradients: list[Tensor],
    sums: list[Tensor],
    steps: list[Tensor],
    *,
    lr: float | Tensor,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """Update tensors of one device and dtype in place, reading nothing on the host.

    Duchi, Hazan, Singer: Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization, 2011; with torch's placement of ``eps`` outside the root.
    """
    torch._foreach_add_(steps, 1.0)
    if maximize:
        gradients = list(torch._foreach_neg(gradients))
    if weight_decay != 0:
        gradients = list(torch._foreach_add(gradients, parameters, alpha=weight_decay))
    torch._foreach_addcmul_(sums, gradients, gradients, value=1)
    denominators = list(torch._foreach_add(torch._foreach_sqrt(sums), eps))
    numerators = list(torch._foreach_mul(gradients, lr))
    torch._foreach_neg_(numerators)
    if lr_decay != 0:
        # Per parameter: they may have begun at different steps.
        for numerator, step in zip(numerators, steps, strict=True):
            numerator.div_((step.double() - 1.0) * lr_decay + 1.0)
    torch._foreach_addcdiv_(parameters, numerators, denominators)
