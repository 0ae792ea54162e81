"""The handle of a run that trained before it was returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flodl.distributed.controller.ledger.epoch import EpochAccount
from flodl.trainer.handle import EpochFeed, TrainHandle
from flodl.trainer.portrait import Portrait
from flodl.trainer.report import RunReport, RunStatus

if TYPE_CHECKING:
    import torch

    from flodl.engine.stats import StepStats
    from flodl.metrics.epoch import EpochMetrics
    from flodl.trainer.state import TrainedState


class FinishedRun(TrainHandle):
    """A run on one device, which is over.

    Args:
        metrics: Of each epoch.
        state: What was trained.
        device: Where.
        step_stats: How the steps ran.
        accounting: Where the samples of each epoch went.
        portrait: Makes what the run says of itself, when it is asked for.
    """

    def __init__(
        self,
        metrics: Sequence[EpochMetrics],
        state: TrainedState,
        device: torch.device,
        step_stats: StepStats | None,
        accounting: Sequence[EpochAccount] = (),
        portrait: Callable[[], Portrait] = Portrait,
    ) -> None:
        feed = EpochFeed(metrics)
        feed.close()
        super().__init__(feed)
        self._state = state
        self._device = device
        self._stats = step_stats
        self._accounting = tuple(accounting)
        self._make_portrait = portrait

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The device."""
        return (self._device,)

    @property
    def step_stats(self) -> StepStats:
        """Which mode the steps of each batch shape ran in, why, and how fast."""
        if self._stats is None:
            raise LookupError("the steps of this run were taken in another process")
        return self._stats

    def portrait(self) -> Portrait:
        """Return what the run says of its model and settings."""
        return self._make_portrait()

    def join(self, timeout: float | None = None) -> TrainedState:  # noqa: ARG002 - it is over
        """Return the trained state."""
        return self._state

    def stop(self, *, save: bool = True) -> None:
        """Do nothing: the run is over."""

    def abort(self) -> None:
        """Do nothing: the run is over."""

    def status(self) -> RunStatus:
        """Return that it is done."""
        return RunStatus(state="done")

    @property
    def report(self) -> RunReport:
        """Where the samples of each epoch went."""
        return RunReport(accounting=self._accounting)
