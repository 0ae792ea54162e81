"""Reading and setting the learning rates of any torch optimizer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def get_lr(optimizer: torch.optim.Optimizer, index: int = 0) -> float:
    """Return the learning rate of a group; a rate on a GPU is read with a wait for the GPU."""
    return float(_group(optimizer, index)["lr"])


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all groups.

    A rate that is a tensor is written in place and stays the tensor that captured graphs read.

    Raises:
        ValueError: ``lr`` is negative or not finite.
    """
    _check(lr, "set_lr")
    for group in optimizer.param_groups:
        _write(group, lr)


def set_group_lr(optimizer: torch.optim.Optimizer, index: int, lr: float) -> None:
    """Set the learning rate of one group.

    Raises:
        IndexError: There is no such group.
        ValueError: ``lr`` is negative or not finite, or the group shares its rate, a tensor, with
            another group.
    """
    _check(lr, "set_group_lr")
    group = _group(optimizer, index)
    if isinstance(group["lr"], Tensor):
        for other in optimizer.param_groups:
            if other is not group and other["lr"] is group["lr"]:
                raise ValueError(
                    f"set_group_lr({index}, {lr}): its learning rate is one tensor with that of "
                    "another group; give each group a tensor of its own"
                )
    _write(group, lr)


def scale_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the learning rate of every group.

    Raises:
        ValueError: ``factor`` is negative or not finite.
    """
    _check(factor, "scale_lr")
    scaled: list[Tensor] = []
    for group in optimizer.param_groups:
        rate = group["lr"]
        if not isinstance(rate, Tensor):
            group["lr"] = rate * factor
        elif not any(rate is done for done in scaled):
            scaled.append(rate)
            with torch.no_grad():
                rate.mul_(factor)


def separate_rates(groups: list[dict[str, Any]]) -> None:
    """Give each group a learning-rate tensor of its own where torch gave all the same."""
    seen: list[Tensor] = []
    for group in groups:
        rate = group["lr"]
        if isinstance(rate, Tensor):
            if any(rate is other for other in seen):
                group["lr"] = rate = rate.clone()
            seen.append(rate)


def _group(optimizer: torch.optim.Optimizer, index: int) -> dict[str, Any]:
    count = len(optimizer.param_groups)
    if not 0 <= index < count:
        raise IndexError(f"group {index}: the optimizer has {count} groups, counted from 0")
    return optimizer.param_groups[index]


def _write(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        with torch.no_grad():
            group["lr"].fill_(lr)
    else:
        group["lr"] = float(lr)


def _check(value: float, call: str) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{call}({value!r}): must be finite and not negative")
