"""What a cell notes down while the trainer works: initial weights, losses, samples, epochs."""

from __future__ import annotations

import torch
from torch import nn

from ddp_bench.coverage import Coverage, CoverageTally
from ddp_bench.definition import DataFacts, ModelDef
from ddp_bench.hashing import state_hash
from flodl import Batch, EpochMetrics


class RunRecorder:
    """The callables of one run, each doing what the definition says and noting it down.

    Args:
        definition: The model.
        facts: The data it is built for.
        tally: Counts the samples.
    """

    def __init__(self, definition: ModelDef, facts: DataFacts, tally: CoverageTally) -> None:
        self._definition = definition
        self._facts = facts
        self._tally = tally
        self._losses: list[torch.Tensor] = []
        self.init_hash: str | None = None
        self.epochs: list[EpochMetrics] = []

    def build(self, device: torch.device) -> nn.Module:
        """Build the model and hash its initial state."""
        model = self._definition.build(device, self._facts)
        self.init_hash = state_hash(model)
        return model

    def train_step(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Take the definition's step; keep its loss and the batch's samples."""
        loss = self._definition.train_step(model, batch)
        self._losses.append(loss.detach())
        self._tally.add(batch)
        return loss

    def end_epoch(self, metrics: EpochMetrics) -> None:
        """Keep the metrics of an epoch."""
        self.epochs.append(metrics)

    def coverage(self) -> Coverage:
        """Return which samples the steps so far have seen."""
        return self._tally.result()

    def losses(self) -> list[float]:
        """Return the loss of every step so far; waits for the device."""
        return [] if not self._losses else torch.stack(self._losses).tolist()
