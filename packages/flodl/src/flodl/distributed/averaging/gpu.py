"""Averages over a group of GPUs: scale, all-reduce, take."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from flodl.distributed.averaging.exchange import Payload, check_weights
from flodl.distributed.averaging.steps import SteppedExchange, Steps, until_done
from flodl.distributed.collective.group import Group

__all__ = ["GpuExchange"]


@final
class GpuExchange(SteppedExchange):
    """Every rank scales its values by its weight; NCCL sums them in an order of its own.

    The bits are the same on all ranks, but may differ from run to run on other hardware.
    """

    def __init__(self, group: Group, numel: int, device: torch.device) -> None:
        self._group = group
        self._sum = torch.zeros(numel, device=device)

    def residual(self) -> Tensor | None:
        """See `Exchange`."""
        return None

    def close(self) -> None:
        """See `Exchange`."""
        self._running = None
        self._group.abandon()

    def _average(self, payload: Payload) -> Steps[None]:
        weights = [1.0] * self._group.size
        if not payload.is_sum:
            side = payload.side.to(self._sum.device)
            rows = side.new_empty(self._group.size, side.numel())
            yield from until_done(self._group.all_gather(rows, side))
            self.sides = rows.cpu()
            weights = check_weights(self.sides)
        self._scale(payload, weights)
        yield from until_done(self._group.all_reduce(self._sum))
        self.result = self._sum
        self.bytes_out = self.bytes_in = self._sum.nbytes

    def _scale(self, payload: Payload, weights: list[float]) -> None:
        own = self._group.rank
        if payload.values is None or weights[own] == 0:
            self._sum.zero_()
            return
        for part in payload.parts:
            piece = slice(part.start, part.stop)
            weight = part.weights(weights)[own]
            torch.mul(payload.values[piece], weight, out=self._sum[piece])
