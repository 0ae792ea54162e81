"""The ranks that wrap a model together: one in each process or thread, or all in this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from flodl.distributed.collective.comms import Comms
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.group import Group, Operation

__all__ = ["GroupParty", "LocalParty", "Party"]


class Party(ABC):
    """Collectives over one tensor for each rank that is held here; they return when done."""

    world_size: int
    ranks: tuple[int, ...]
    """Those held here."""

    @abstractmethod
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors by their sum over all ranks."""

    @abstractmethod
    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors by that of rank 0."""

    @abstractmethod
    def collect(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the tensors of all ranks as rows on the CPU."""

    @abstractmethod
    def abort(self) -> None:
        """Let waiting calls raise, and later ones too; any thread may call it, and again."""

    @abstractmethod
    def close(self) -> None:
        """Let go."""


@final
class GroupParty(Party):
    """This process or thread holds one rank; the others are reached over a group."""

    def __init__(self, group: Group) -> None:
        self.world_size = group.size
        self.ranks = (group.rank,)
        self._group = group
        self._is_aborted = False

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """See `Party`."""
        self._complete(self._live.all_reduce(tensors[0]))

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """See `Party`."""
        self._complete(self._live.broadcast(tensors[0], 0))

    def collect(self, tensors: Sequence[Tensor]) -> Tensor:
        """See `Party`."""
        rows = tensors[0].new_empty(self.world_size, tensors[0].numel())
        self._complete(self._live.all_gather(rows, tensors[0]))
        return rows.cpu()

    def abort(self) -> None:
        """See `Party`."""
        self._is_aborted = True
        self._group.abandon()

    def close(self) -> None:
        """See `Party`."""
        self._group.close()

    @property
    def _live(self) -> Group:
        if self._is_aborted:
            raise CollectiveError("aborted: wrap the model again to go on")
        return self._group

    def _complete(self, operation: Operation) -> None:
        try:
            self._group.complete(operation, interrupted=lambda: self._is_aborted)
        except Interrupted:
            raise CollectiveError("aborted while waiting for other ranks") from None


@final
class LocalParty(Party):
    """This process holds all ranks."""

    def __init__(self, comms: Comms) -> None:
        self.world_size = comms.size
        self.ranks = tuple(range(comms.size))
        self._comms = comms

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """See `Party`."""
        self._comms.all_reduce(tensors)

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """See `Party`."""
        self._comms.broadcast(tensors)

    def collect(self, tensors: Sequence[Tensor]) -> Tensor:
        """See `Party`."""
        return torch.stack([tensor.cpu() for tensor in tensors])

    def abort(self) -> None:
        """See `Party`."""
        self._comms.close()

    def close(self) -> None:
        """See `Party`."""
        self._comms.close()
