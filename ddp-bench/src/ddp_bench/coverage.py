"""Which samples training really saw: each one carries its index, and the step counts them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flodl import Batch
from flodl.data import InMemoryDataSet, TensorDataSet

INDEX = "sample_index"


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Samples over all passes of a run."""

    expected: int
    """Those of the full batches of every pass; the remainder of a pass is left out."""
    seen: int
    """Different samples in each pass, summed over the passes."""
    duplicates: int
    """Samples that a pass saw again."""


def indexed(dataset: InMemoryDataSet) -> TensorDataSet:
    """Return the same samples, each with its index under ``sample_index``."""
    fields = dict(zip(dataset.names, dataset.tensors, strict=True))
    return TensorDataSet(**fields, **{INDEX: torch.arange(len(dataset))})


class CoverageTally:
    """Counts the samples of one pass after the other.

    Args:
        n_samples: Length of the data set.
        batch_size: Samples per step.
    """

    def __init__(self, n_samples: int, batch_size: int) -> None:
        self._per_pass = n_samples // batch_size * batch_size
        self._counts = torch.zeros(n_samples, dtype=torch.int64)
        self._pass: int | None = None
        self._passes = self._seen = self._duplicates = 0

    def add(self, batch: Batch) -> None:
        """Count the samples of a batch; one of another epoch begins another pass."""
        if batch.epoch != self._pass:
            self._close_pass()
            self._pass = batch.epoch
        indices = batch[INDEX]
        if self._counts.device != indices.device:
            self._counts = self._counts.to(indices.device)
        self._counts.index_add_(0, indices, torch.ones_like(indices))

    def result(self) -> Coverage:
        """Close the present pass and return the totals of all."""
        self._close_pass()
        return Coverage(
            expected=self._per_pass * self._passes, seen=self._seen, duplicates=self._duplicates
        )

    def _close_pass(self) -> None:
        if self._pass is None:
            return
        self._seen += int((self._counts > 0).sum())
        self._duplicates += int((self._counts - 1).clamp(min=0).sum())
        self._passes += 1
        self._counts.zero_()
        self._pass = None
