"""Recurrent layers in a data flow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class First(nn.Module):
    """Returns the first item of what a module returns, such as the sequence of an LSTM."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the first item.

        Raises:
            TypeError: The module returned no tuple or list, or an empty one.
        """
        result = self.module(*args, **kwargs)
        if not isinstance(result, tuple | list) or not result:
            raise TypeError(
                f"First({type(self.module).__name__}): it returned {type(result).__name__}, "
                "not a tuple with a first item; use the module without First"
            )
        first: Tensor = result[0]
        return first


class Unrolled(nn.Module):
    """A recurrent cell over a sequence: ``state = cell(x[:, t], state)``, from zeros.

    A ``GRUCell`` on a GPU runs in fewer kernels than a loop over it: what it makes of the inputs
    is one product for all steps, and so are the gradients of its parameters. Its numbers are
    those of the loop, up to the order of sums; such a result cannot be differentiated twice.

    Args:
        cell: ``RNNCell``, ``GRUCell``, ``LSTMCell``, or any module with a ``hidden_size`` that
            takes inputs ``[batch, …]`` and state ``[batch, hidden_size]``, and returns the state.
        return_sequences: Return the outputs of all steps, not of the last alone.

    Raises:
        TypeError: The cell has no ``hidden_size``.
    """

    def __init__(self, cell: nn.Module, *, return_sequences: bool = False) -> None:
        super().__init__()
        if not isinstance(getattr(cell, "hidden_size", None), int):
            raise TypeError(
                f"Unrolled({type(cell).__name__}): a recurrent cell has a hidden_size; "
                "GRUCell, LSTMCell and RNNCell are such cells"
            )
        self.cell = cell
        self.return_sequences = return_sequences

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, hidden_size]``, or ``[batch, steps, hidden_size]``.

        Args:
            x: Inputs ``[batch, steps, …]``.

        Raises:
            ValueError: There is no step.
        """
        if x.dim() < 2 or x.shape[1] == 0:
            raise ValueError(
                f"Unrolled: inputs of shape {list(x.shape)}; [batch, steps, …] with a step or more "
                "is needed"
            )
        if _has_fused_steps(self.cell, x):
            found: Tensor = _FusedGru.apply(x, *_parameters(self.cell), self.return_sequences)
            return found.transpose(0, 1) if self.return_sequences else found
        state: Any = x.new_zeros(x.shape[0], int(self.cell.hidden_size))  # type: ignore[arg-type]
        is_pair = isinstance(self.cell, nn.LSTMCell)
        state = (state, state) if is_pair else state
        outputs: list[Tensor] = []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            if self.return_sequences:
                outputs.append(state[0] if is_pair else state)
        last: Tensor = state[0] if is_pair else state
        return torch.stack(outputs, 1) if self.return_sequences else last


def _has_fused_steps(cell: nn.Module, x: Tensor) -> bool:
    """Return whether the cell is torch's own, on a GPU, and nobody watches its calls."""
    return (
        type(cell) is nn.GRUCell
        and x.is_cuda
        and x.dim() == 3
        and cell.bias
        and x.dtype == cell.weight_ih.dtype
        and not torch.is_autocast_enabled("cuda")
        and not torch.compiler.is_compiling()
        and not (cell._forward_hooks or cell._forward_pre_hooks or cell._backward_hooks)  # noqa: SLF001
    )


def _parameters(cell: nn.Module) -> tuple[Any, ...]:
    return cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh


class _FusedGru(torch.autograd.Function):
    """A GRU cell over ``[batch, steps, inputs]`` by torch's fused step.

    The backward pass goes through the steps with the gradient of the state alone. What the
    parameters need of each step is kept side by side, as if it were one large batch.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor,
        bias_hh: Tensor,
        wants_all: bool,
    ) -> Tensor:
        """Return the states ``[steps, batch, hidden]``, or the last one."""
        inputs = x.transpose(0, 1).contiguous()
        gates = functional.linear(inputs, weight_ih, bias_ih)
        turned = weight_hh.t()
        state = x.new_zeros(x.shape[0], weight_hh.shape[1])
        states, kept = [state], []
        for gate in gates:
            hidden = torch.addmm(bias_hh, state, turned)
            state, workspace = _step(gate, hidden, state)
            states.append(state)
            kept.append(workspace)
        every = torch.stack(states)
        ctx.save_for_backward(inputs, weight_ih, weight_hh, every, *kept)
        ctx.wants_all = wants_all
        return every[1:] if wants_all else state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of inputs and parameters."""
        inputs, weight_ih, weight_hh, every, *kept = ctx.saved_tensors
        steps = len(kept)
        of_inputs, of_hidden = [grad] * steps, [grad] * steps
        state = (grad[-1] if ctx.wants_all else grad).contiguous()
        for step in reversed(range(steps)):
            of_inputs[step], of_hidden[step], state, _, _ = _step_backward(state, kept[step], False)
            if step:
                state = torch.addmm(state, of_hidden[step], weight_hh)
                if ctx.wants_all:
                    state = state + grad[step - 1]
        gates, hidden = (torch.stack(of).flatten(0, 1) for of in (of_inputs, of_hidden))
        for_x = None
        if ctx.needs_input_grad[0]:
            for_x = (gates @ weight_ih).unflatten(0, inputs.shape[:2]).transpose(0, 1)
        return (
            for_x,
            gates.t() @ inputs.flatten(0, 1),
            hidden.t() @ every[:-1].flatten(0, 1),
            gates.sum(0),
            hidden.sum(0),
            None,
        )


_step: Any = torch.ops.aten._thnn_fused_gru_cell  # noqa: SLF001
_step_backward: Any = torch.ops.aten._thnn_fused_gru_cell_backward  # noqa: SLF001
