"""A conditional loop as operators of torch, so that a compiler or exporter can follow it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from flodl.graph.nodes.halt import as_tensor, halt_flags

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_OPERATOR = "torch._higher_order_ops.while_loop"


def has_operators() -> bool:
    """Return whether this torch has ``while_loop`` and ``cond``."""
    return hasattr(torch, "cond") and importlib.util.find_spec(_OPERATOR) is not None


def hop_loop(
    body: Callable[[Tensor], Tensor],
    condition: Callable[[Tensor], Any],
    state: Tensor,
    most: int,
    reduce: str,
    until: bool,
) -> tuple[Tensor, Tensor]:
    """Return the state after a conditional loop, and how many iterations it made.

    Outside compilers and exporters the host decides: the operators would compile in each call.
    With gradients each iteration is a ``cond``: those of ``while_loop`` are wrong, as of torch
    2.15, for a loop that halts before its first iteration.
    """

    def step(state: Tensor) -> Tensor:
        return body(state).clone()  # the operators refuse an output that is their input

    def goes_on(state: Tensor) -> Tensor:
        return ~halt_flags(as_tensor(condition(state), state), reduce).reshape(())

    count = torch.zeros((), dtype=torch.int64, device=state.device)
    if until:
        state, count, most = step(state), count + 1, most - 1
    if most == 0:
        return state, count
    if not torch.compiler.is_compiling():
        return _on_host(step, goes_on, state, count, most)
    if torch.is_grad_enabled():
        return _by_cond(step, goes_on, state, count, most)
    return _by_while_loop(step, goes_on, state, count, count + most)


def _on_host(
    step: Callable[[Tensor], Tensor],
    goes_on: Callable[[Tensor], Tensor],
    state: Tensor,
    count: Tensor,
    most: int,
) -> tuple[Tensor, Tensor]:
    done = 0
    while done < most and goes_on(state):
        state, done = step(state), done + 1
    return state, count + done


def _by_while_loop(
    step: Callable[[Tensor], Tensor],
    goes_on: Callable[[Tensor], Tensor],
    state: Tensor,
    count: Tensor,
    end: Tensor,
) -> tuple[Tensor, Tensor]:
    from torch._higher_order_ops import while_loop

    result: tuple[Tensor, Tensor] = while_loop(
        lambda count, state: (count < end) & goes_on(state),
        lambda count, state: (count + 1, step(state)),
        (count, state),
    )
    return result[1], result[0]


def _by_cond(
    step: Callable[[Tensor], Tensor],
    goes_on: Callable[[Tensor], Tensor],
    state: Tensor,
    count: Tensor,
    most: int,
) -> tuple[Tensor, Tensor]:
    alive = torch.ones((), dtype=torch.bool, device=state.device)
    for _ in range(most):
        alive = alive & goes_on(state)
        state = torch.cond(alive, step, lambda state: state.clone(), (state,))
        count = count + alive
    return state, count
