"""Adaptive computation time: a halting probability a step, outputs weighed by it.

After Graves, "Adaptive Computation Time for Recurrent Neural Networks" (2016), section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.core.errors import NodeError
from flodl.graph.nodes.halt import take_alive

if TYPE_CHECKING:
    from flodl.graph.nodes.traces import TraceEmit


class Pondering:
    """The running sums of one call of a loop in act mode, one for each row of the batch.

    With ``h_t = sigmoid(halt(s_t))`` and ``N`` the first ``t`` at which the sum of ``h`` reaches
    ``1 - eps`` (or the last one): the output is ``sum_{t<N} h_t s_t + R s_N`` with
    ``R = 1 - sum_{t<N} h_t``, and the ponder cost ``N + R``.
    """

    def __init__(self, start: Tensor, eps: float) -> None:
        if start.dim() == 0:
            raise NodeError("loop: act mode needs a state with a batch dimension")
        self._state = start
        self._eps = eps
        rows = start.shape[0]
        self._spent = start.new_zeros(rows)
        self._rest = start.new_zeros(rows)
        self._count = start.new_zeros(rows)
        self.alive = torch.ones(rows, dtype=torch.bool, device=start.device)
        self._output: Tensor | None = None

    def advance(self, new: Tensor) -> Tensor:
        """Return the next state: new where a row still ponders."""
        self._state = take_alive(self.alive, new, self._state)
        return self._state

    def weigh(self, logit: Tensor, emit: TraceEmit, last: bool) -> None:
        """Add the present state with the weight that its halt logit gives it."""
        rows = self.alive.shape[0]
        if logit.dim() == 0 or logit.shape[0] != rows:
            raise NodeError(
                f"loop: in act mode the condition returned shape {list(logit.shape)} for {rows} "
                "rows",
                hint="return one logit for each row; LearnedHalt does",
            )
        chance = torch.sigmoid(logit.reshape(rows, -1).mean(dim=1))
        emit.publish("halt_prob", chance)
        ends = self.alive if last else self.alive & (self._spent + chance >= 1 - self._eps)
        goes_on = self.alive & ~ends
        remainder = 1 - self._spent
        nothing = torch.zeros_like(chance)
        weight = torch.where(ends, remainder, torch.where(goes_on, chance, nothing))
        spread = weight.reshape(rows, *([1] * (self._state.dim() - 1)))
        share = spread * self._state
        self._output = share if self._output is None else self._output + share
        self._rest = torch.where(ends, remainder, self._rest)
        self._count = self._count + self.alive
        self._spent = self._spent + torch.where(goes_on, chance, nothing)
        self.alive = goes_on

    def output(self, emit: TraceEmit) -> Tensor:
        """Return the weighted output and publish the ponder cost."""
        assert self._output is not None, "a loop has one iteration or more"
        emit.publish("ponder_cost", self._count + self._rest)
        return self._output
