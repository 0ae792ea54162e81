"""A batch whose rows lie on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, final, overload

import torch
from torch import Tensor

from flodl.data.batch import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """The rows of all ranks between two yields of an epoch."""

    shards: tuple[tuple[Batch, ...], ...]
    """Batches of the ranks that are held here."""
    rows: tuple[int, ...]
    """Rows of every rank."""
    counts: tuple[int, ...]
    """Batches of every rank."""
    device: torch.device
    """Where what the user reads of them is put together."""


@final
class ShardedBatch(Batch):
    """What an epoch on several devices yields.

    It reads like any batch: a tensor that is asked for is put together on one device, once. Fields
    that only the replicas need, such as the inputs, are never moved.

    Args:
        turn: The rows.
        epoch: Epoch it belongs to.
        index: Its position in the epoch.
    """

    __slots__ = ("device", "rows", "shards")

    def __init__(self, turn: Turn, *, epoch: int, index: int) -> None:
        parts = [batch for own in turn.shards for batch in own]
        self.shards, self.rows, self.device = turn.shards, turn.rows, turn.device
        self._names = parts[0].names
        self._static = parts[0].static
        # Like the tuple that a batch of one device holds, only that its items are made when needed.
        self._tensors = cast("tuple[Tensor, ...]", _Whole(parts, turn.device))
        self.epoch, self.index = epoch, index
        self.is_static = False
        self.lease_id, self.ranges = None, ()

    @property
    def size(self) -> int:
        """Number of rows (samples)."""
        return sum(batch.size for own in self.shards for batch in own)


class _Whole(Sequence[Tensor]):
    def __init__(self, parts: Sequence[Batch], device: torch.device) -> None:
        self._parts, self._device = parts, device
        self._made: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self._parts[0])

    @overload
    def __getitem__(self, key: int) -> Tensor: ...

    @overload
    def __getitem__(self, key: slice) -> list[Tensor]: ...

    def __getitem__(self, key: int | slice) -> Tensor | list[Tensor]:
        if isinstance(key, slice):
            return [self[position] for position in range(len(self))[key]]
        position = range(len(self))[key]
        if position not in self._made:
            rows = [batch[position].to(self._device) for batch in self._parts]
            self._made[position] = rows[0] if len(rows) == 1 else torch.cat(rows)
        return self._made[position]
