"""Batches gathered within the step: the set, the order and the place in it lie on the device."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import is_

import torch
from torch import Tensor

from flodl.data import Batch


class ResidentRows:
    """Whole batches of a set on a device, in the order of an epoch.

    A step that is captured with them reads its place from the device and moves it on, so that the
    host launches a replay and nothing else.

    Args:
        tensors: The set; they keep their place.
        names: Their names.
        order: Rows in the order of the epoch, written in place for each; it may be longer.
        batch_size: Rows of a batch.
    """

    def __init__(
        self, tensors: Sequence[Tensor], names: Sequence[str], order: Tensor, batch_size: int
    ) -> None:
        self._tensors = tuple(tensors)
        self._names = tuple(names)
        self._order = order
        self.size = batch_size
        whole = order.numel() // batch_size
        self._batches = order[: whole * batch_size].view(whole, batch_size)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=order.device)
        self._next = self._last = 0
        self._epoch = self._index = 0
        places = tuple((t.data_ptr(), t.shape, t.dtype) for t in (*self._tensors, order))
        self.key: Hashable = ("rows", self._names, batch_size, places)
        """What a captured step is keyed by."""

    @property
    def title(self) -> str:
        """The signature as a person reads it."""
        parts = [
            f"{name} {str(t.dtype).removeprefix('torch.')}{[self.size, *t.shape[1:]]}"
            for name, t in zip(self._names, self._tensors, strict=True)
        ]
        return ", ".join(parts) + ", gathered in the step"

    def uses(self, tensors: Sequence[Tensor], order: Tensor) -> bool:
        """Return whether these are the set and the order that batches are taken from."""
        same = len(tensors) == len(self._tensors) and all(map(is_, tensors, self._tensors))
        return same and order is self._order

    def batch(self, number: int, *, epoch: int, index: int, count: int = 1) -> RowBatch:
        """Return a batch of the epoch, not gathered yet.

        Args:
            number: Its place in the order, in batches.
            epoch: The epoch.
            index: Its number in the epoch.
            count: How many batches from there on, for as many steps.
        """
        return RowBatch(self, number, epoch, index, count)

    def go_to(self, batch: RowBatch) -> None:
        """Make ``read`` give this batch next; nothing is launched where it does already."""
        if self._next != batch.number:
            self._cursor.fill_(batch.number)
        self._next, self._last = batch.number + batch.count, batch.number
        self._epoch, self._index = batch.epoch, batch.index

    def again(self) -> None:
        """Make ``read`` begin again where it was sent last."""
        self._cursor.fill_(self._last)

    def read(self) -> Batch:
        """Return the next batch and move on, all of it on the device."""
        rows = self._batches.index_select(0, self._cursor).view(-1)
        parts = [tensor.index_select(0, rows) for tensor in self._tensors]
        self._cursor.add_(1)
        return Batch(parts, self._names, epoch=self._epoch, index=self._index)

    def changing(self) -> list[Tensor]:
        """Return the tensors that ``read`` changes."""
        return [self._cursor]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """A batch that the step gathers itself.

    Attributes:
        source: Where its rows are.
        number: Its place in the order, in batches.
        epoch: The epoch.
        index: Its number in the epoch.
        count: How many batches from there on, for as many steps.
    """

    source: ResidentRows
    number: int
    epoch: int
    index: int
    count: int = 1

    @property
    def size(self) -> int:
        """Number of rows (samples) of one batch."""
        return self.source.size

    def singles(self) -> list[RowBatch]:
        """Return the batches one by one."""
        return [
            RowBatch(self.source, self.number + step, self.epoch, self.index + step)
            for step in range(self.count)
        ]

    def read(self) -> Batch:
        """Return the batch, gathered now."""
        self.source.go_to(self)
        return self.source.read()


class RowInputs:
    """The inputs of a recorded step that gathers its batches itself.

    Args:
        source: Where the rows are.
    """

    def __init__(self, source: ResidentRows) -> None:
        self._source = source

    def fill(self, batch: RowBatch) -> None:
        """Make this batch the one that the next step reads."""
        self._source.go_to(batch)

    def read(self) -> Batch:
        """Return the batch; called within the step."""
        return self._source.read()

    def again(self) -> None:
        """Make the next step read the same batch once more."""
        self._source.again()

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the inputs that a step changes."""
        return self._source.changing()
