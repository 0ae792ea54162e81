"""A running or finished run, as its caller holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from flodl.engine.step import StepStats
from flodl.metrics.epoch import EpochMetrics
from flodl.trainer.state import TrainedState


class TrainHandle:
    """Access to a run's metrics and result.

    On one device ``run()`` trains before it returns, so everything is here at once. Each of
    :meth:`metrics`, :meth:`next_metrics` and :meth:`poll_metrics` sees every epoch: reading by
    one takes nothing from another.
    """

    def __init__(
        self,
        metrics: Sequence[EpochMetrics],
        state: TrainedState,
        devices: Sequence[torch.device],
        step_stats: StepStats,
    ) -> None:
        self._metrics = tuple(metrics)
        self._state = state
        self._next = 0
        self._polled = 0
        self.devices = tuple(devices)
        self.step_stats = step_stats
        """Which mode the steps of each batch shape ran in, why, and how fast."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.devices)

    def metrics(self) -> Iterator[EpochMetrics]:
        """Yield the metrics of each epoch, in order, from the first."""
        yield from self._metrics

    def next_metrics(self) -> EpochMetrics | None:
        """Return the metrics of the next epoch not yet returned here; ``None`` after the last."""
        if self._next == len(self._metrics):
            return None
        self._next += 1
        return self._metrics[self._next - 1]

    def poll_metrics(self) -> list[EpochMetrics]:
        """Return what has been added since the last poll, without waiting."""
        fresh = list(self._metrics[self._polled :])
        self._polled = len(self._metrics)
        return fresh

    def join(self) -> TrainedState:
        """Wait for the end of the run and return the trained state."""
        return self._state
