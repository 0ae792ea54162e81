"""What becomes of the inner optimizer's state when a consensus is taken over."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.core.errors import ConfigError

__all__ = ["InitialState", "averaged_state"]


def averaged_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors of their parameter's shape, by name, to average like it.

    State that an optimizer makes on its first step is made now, so that all ranks have it.
    """
    _materialize(optimizer)
    names = {id(p): name for name, p in model.named_parameters()}
    found = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and _is_like(value, parameter):
                found[f"{names.get(id(parameter), '?')}/{key}"] = value
    return found


@final
class InitialState:
    """The state that an optimizer starts with, to return to in place, as graphs need it."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        _materialize(optimizer)
        self._starts = {
            (id(parameter), key): _constant(key, value)
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
            if isinstance(value, Tensor)
        }

    @torch.no_grad()
    def restore(self) -> None:
        """Set all state tensors to what they started with."""
        for parameter, state in self._optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    value.fill_(self._starts.get((id(parameter), key), 0.0))


def _constant(key: str, value: Tensor) -> float:
    start = float(value.reshape(-1)[0].item()) if value.numel() else 0.0
    if not bool((value == start).all()):
        raise ConfigError(
            f"inner_state='reset': the optimizer's {key!r} does not start as one number",
            hint="use inner_state='keep' or 'average' with this optimizer",
        )
    return start


@torch.no_grad()
def _materialize(optimizer: Optimizer) -> None:
    """Let a fresh optimizer make its state by a step that changes nothing."""
    if optimizer.state:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters]
    values = [p.clone() for p in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        parameter.zero_()  # or weight decay would leave its trace in a momentum
    optimizer.step()
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = state["step"].zero_() if isinstance(state["step"], Tensor) else 0
    for parameter, gradient, value in zip(parameters, gradients, values, strict=True):
        parameter.grad = gradient
        parameter.copy_(value)


def _is_like(value: Tensor, parameter: Tensor) -> bool:
    return value.is_floating_point() and value.shape == parameter.shape and value.dim() > 0
