"""What a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedState:
    """Parameters and buffers at the end of a run, on the CPU and in storage of their own."""

    params: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    """Persistent buffers, by name."""
    epoch: int
    """Epochs finished."""
    global_step: int
    """Optimizer steps taken."""
    generation: int = 1
    """Which set of ranks ended the run, counted from 1."""
    partial: bool = False
    """Whether ranks were lost that never came back."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers in one dictionary, as ``load_state_dict`` takes it."""
        return {**self.params, **self.buffers}

    def load_into(self, module: nn.Module, *, strict: bool = True) -> None:
        """Copy the state into a module of the same architecture.

        Raises:
            RuntimeError: Names or shapes differ, as ``load_state_dict`` reports it.
        """
        module.load_state_dict(self.state_dict(), strict=strict)


def snapshot(model: nn.Module, *, epoch: int, global_step: int) -> TrainedState:
    """Return a copy of the model's present state."""
    state = model.state_dict(keep_vars=True)
    copied = {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
    is_parameter = {name: isinstance(value, nn.Parameter) for name, value in state.items()}
    return TrainedState(
        params={name: value for name, value in copied.items() if is_parameter[name]},
        buffers={name: value for name, value in copied.items() if not is_parameter[name]},
        epoch=epoch,
        global_step=global_step,
    )
