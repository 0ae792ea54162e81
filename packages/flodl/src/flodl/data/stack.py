"""Batches from samples that came one at a time: stacked, or formed by a function of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flodl.core.errors import SampleError
from flodl.data.adapter import SampleLayout
from flodl.data.batch import Batch
from flodl.data.dataset import as_tensors, fields_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.data.config import Collate


class Stacker:
    """Forms the batches of one stream; the first sample says what all others look like.

    Args:
        names: Names of the tensors, in place of those of the samples.
        collate: Forms a batch of a list of samples, in place of stacking.
    """

    def __init__(self, names: Sequence[str] | None, collate: Collate | None) -> None:
        self._names = names
        self._collate = collate
        self._layout: SampleLayout | None = None

    def form(self, samples: list[Any], first: int, *, epoch: int, index: int) -> Batch:
        """Return the batch of these samples; ``first`` is the number of the first in its epoch.

        Raises:
            SampleError: A sample differs from the first of the stream.
        """
        if self._collate is not None:
            return as_batch(self._collate(samples), self._names, epoch=epoch, index=index)
        if self._layout is None:
            self._layout = SampleLayout.of(samples[0])
        layout, numbers = self._layout, range(first, first + len(samples))
        columns = layout.columns_of(samples, numbers)
        tensors = [
            layout.stacked(column, numbers, position) for position, column in enumerate(columns)
        ]
        return Batch(tensors, self._names or layout.names, epoch=epoch, index=index)


def as_batch(formed: object, names: Sequence[str] | None, *, epoch: int, index: int) -> Batch:
    """Return a batch of what a collate function or a loader of torch gives.

    Raises:
        SampleError: It holds no tensors.
    """
    if isinstance(formed, Batch):
        return Batch(formed.into_list(), names or formed.names, epoch=epoch, index=index)
    keys, values = fields_of(formed)
    tensors = as_tensors(values, "a batch holds")
    if not tensors:
        raise SampleError("a batch without tensors: expected one or more")
    return Batch(tensors, names or keys, epoch=epoch, index=index)
