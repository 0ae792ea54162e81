"""An optimizer's state as tensors and plain values, to be given to a rank that joins."""

from __future__ import annotations

import io

import torch

from flodl.checkpoint.optim.files import load_state, save_state
from flodl.distributed.averaging.state import State

_BYTES = "optimizer"


def give_optimizer(optimizer: torch.optim.Optimizer) -> State:
    """Return the state of an optimizer."""
    buffer = io.BytesIO()
    save_state(optimizer, buffer)
    data = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
    return State(tensors={_BYTES: data}, meta={_BYTES: True})


def take_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Make an optimizer go on where the giver's was.

    Raises:
        StateMismatchError: It belongs to another optimizer.
    """
    load_state(optimizer, io.BytesIO(state.tensors[_BYTES].numpy().tobytes()))
