"""Batches gathered straight from whole tensors in memory: the fastest simple path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.data.batch import default_names

if TYPE_CHECKING:
    from flodl.data.compose import InMemoryView


class ResidentSource:
    """Rows of tensors in memory.

    Args:
        view: The tensors, and where the samples lie in them.
        names: Names that the data set declares, or ``None``.
    """

    is_in_memory = True

    def __init__(self, view: InMemoryView, names: tuple[str, ...] | None) -> None:
        self._view = view
        self._tensors = view.tensors
        self.names = names or default_names(len(view.tensors))
        self.sample_bytes = sum(tensor[:1].nbytes for tensor in view.tensors)

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as rows of the tensors."""
        return self._view.rows(order)

    def gather(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of the given rows."""
        return tuple([torch.index_select(tensor, 0, rows) for tensor in self._tensors])
