"""Freezing parameters, so that no optimizer changes them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

Freezable = nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]]


def freeze(target: Freezable) -> None:
    """Make parameters constant: they get no gradient, and lose the one they have.

    torch's optimizers change every parameter that has a gradient, even when ``requires_grad`` is
    false, so the gradient is dropped.
    """
    for parameter in _parameters(target):
        parameter.requires_grad_(False)
        parameter.grad = None


def unfreeze(target: Freezable) -> None:
    """Make parameters trainable again; integer ones, which cannot be, are left alone."""
    for parameter in _parameters(target):
        if parameter.is_floating_point() or parameter.is_complex():
            parameter.requires_grad_(True)


def is_frozen(target: Freezable) -> bool:
    """Return whether all parameters are frozen; true also when there are none."""
    return not any(parameter.requires_grad for parameter in _parameters(target))


def frozen_names(module: nn.Module) -> list[str]:
    """Return the names of the parameters that are frozen, in the module's order."""
    return [name for name, parameter in module.named_parameters() if not parameter.requires_grad]


def _parameters(target: Freezable) -> list[Tensor]:
    if isinstance(target, nn.Module):
        return list(target.parameters())
    if isinstance(target, Tensor):
        return [target]
    return [item[1] if isinstance(item, tuple) else item for item in target]
