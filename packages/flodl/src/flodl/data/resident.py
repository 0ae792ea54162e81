"""Batches gathered straight from whole tensors in memory: the fastest simple path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flodl.data.batch import default_names
from flodl.data.dataset import declared_names

if TYPE_CHECKING:
    from flodl.data.compose import InMemoryView


class ResidentSource:
    """Rows of tensors in memory.

    Args:
        view: The tensors, and where the samples lie in them.
        dataset: The data set they were found in; it may declare names.
    """

    is_in_memory = True

    def __init__(self, view: InMemoryView, dataset: object) -> None:
        self._view = view
        self._tensors = view.tensors
        self.count = len(view.tensors)
        self.names = declared_names(dataset) or default_names(self.count)
        self.sample_bytes = sum(tensor[:1].nbytes for tensor in view.tensors)

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch as rows of the tensors."""
        return self._view.rows(order)

    def gather(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of the given rows."""
        return tuple([torch.index_select(tensor, 0, rows) for tensor in self._tensors])
