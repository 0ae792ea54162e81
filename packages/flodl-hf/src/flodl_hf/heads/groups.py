"""Parameter groups for fine-tuning: what weight decay must not touch."""

from __future__ import annotations

from typing import Any

from torch import nn


def no_decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return two groups for a torch optimizer: weights with decay, biases and norms without.

    A shared weight stands in one of them once; frozen parameters are left out.
    """
    norms = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.LayerNorm)
        for parameter in module.parameters()
    }
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_plain = name.endswith("bias") or id(parameter) in norms
            (plain if is_plain else decayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
