"""Averages over a group of CPU ranks: each rank folds one shard in rank order, then all share.

The bytes are those of a ring all-reduce, but the sum has a fixed order and every hop may be
bfloat16 while the sum stays float32; Gloo's own all-reduce of bfloat16 sums in bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from flodl.distributed.averaging.exchange import Part, Payload, check_weights, fold
from flodl.distributed.averaging.steps import SteppedExchange, Steps, until_done
from flodl.distributed.averaging.wire import Residual, Wire, packed, unpacked, wire_dtype
from flodl.distributed.collective.group import Group

__all__ = ["ShardExchange", "ShardFold"]


@final
class ShardFold:
    """The two collectives behind an average, over any group.

    Args:
        group: Its ranks are those whose rows are folded.
        numel: Length of the flat buffer, the same on all ranks.
        error_feedback: Whether what bfloat16 rounds away is added to the next average.
    """

    def __init__(self, group: Group, numel: int, *, error_feedback: bool) -> None:
        self._group = group
        self._numel = numel
        self._shard = max(1, -(-numel // group.size))
        self._averages = torch.zeros(group.size, self._shard)
        self.residual = Residual(self._shard, is_on=error_feedback)
        self._buffers: dict[Wire, tuple[Tensor, Tensor, Tensor]] = {}
        self.bytes_moved = 0
        """Payload bytes that this rank sent, and also received, in the last average."""

    @property
    def result(self) -> Tensor:
        """The last average."""
        return self._averages.view(-1)[: self._numel]

    def gather(self, side: Tensor) -> Steps[Tensor]:
        """Return the rows that all ranks sent aside."""
        rows = torch.empty(self._group.size, side.numel(), dtype=side.dtype)
        yield from until_done(self._group.all_gather(rows, side))
        return rows

    def average(
        self, values: Tensor | None, parts: Sequence[Part], weights: Sequence[float], wire: Wire
    ) -> Steps[None]:
        """Leave the average over all ranks in `result`."""
        sent, received, shared = self._buffers_for(wire)
        if values is None:
            sent.zero_()
        else:
            packed(values, sent.view(-1)[: self._numel])
        yield from until_done(self._group.exchange(received, sent))
        own = self._averages[self._group.rank]
        self._fold(received, parts, weights, own)
        self.residual.packed(own, sent[0])
        yield from until_done(self._group.all_gather(shared, sent[0]))
        if wire == "bf16":
            unpacked(shared, self._averages)
        self.bytes_moved = 2 * (self._group.size - 1) * self._shard * sent.element_size()

    def _fold(
        self, received: Tensor, parts: Sequence[Part], weights: Sequence[float], own: Tensor
    ) -> None:
        first = self._group.rank * self._shard
        for part in parts:
            here = part.within(first, min(first + self._shard, self._numel))
            if here is not None:
                rows = [row[here.start : here.stop] for row in received]
                fold(rows, here.weights(weights), own[here.start : here.stop])

    def _buffers_for(self, wire: Wire) -> tuple[Tensor, Tensor, Tensor]:
        if wire not in self._buffers:
            shape, dtype = self._averages.shape, wire_dtype(wire)
            shared = self._averages if wire == "fp32" else torch.zeros(shape, dtype=dtype)
            self._buffers = {
                wire: (torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), shared)
            }
        return self._buffers[wire]


@final
class ShardExchange(SteppedExchange):
    """Every rank of the generation folds a shard."""

    def __init__(self, group: Group, numel: int, *, error_feedback: bool = True) -> None:
        self._group = group
        self._fold = ShardFold(group, numel, error_feedback=error_feedback)

    def residual(self) -> Tensor | None:
        """See `Exchange`."""
        return self._fold.residual.values

    def close(self) -> None:
        """See `Exchange`."""
        self._running = None
        self._group.abandon()

    def _average(self, payload: Payload) -> Steps[None]:
        if payload.is_sum:
            weights = [1.0] * self._group.size
        else:
            self.sides = yield from self._fold.gather(payload.side)
            weights = check_weights(self.sides)
        values = payload.values if weights[self._group.rank] > 0 else None
        yield from self._fold.average(values, payload.parts, weights, payload.wire)
        self.result = self._fold.result
        self.bytes_out = self.bytes_in = self._fold.bytes_moved
