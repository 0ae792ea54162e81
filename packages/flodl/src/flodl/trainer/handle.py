"""A running or finished run, as its caller holds it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from flodl.metrics.epoch import EpochMetrics
from flodl.trainer.state import TrainedState

if TYPE_CHECKING:
    import torch

    from flodl.engine.stats import StepStats
    from flodl.monitor.monitor import Monitor
    from flodl.trainer.portrait import Portrait
    from flodl.trainer.report import RunReport, RunStatus


class EpochFeed:
    """The metrics of a run, added in order, read by anyone as often as they like."""

    def __init__(self, metrics: Sequence[EpochMetrics] = ()) -> None:
        self._metrics = list(metrics)
        self._is_over = False
        self._changed = threading.Condition()

    def add(self, metrics: EpochMetrics) -> None:
        """Add those of one more epoch."""
        with self._changed:
            self._metrics.append(metrics)
            self._changed.notify_all()

    def close(self) -> None:
        """Say that no more follow."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self, index: int, timeout: float | None = None) -> EpochMetrics | None:
        """Return the ``index``-th, waiting for it; ``None`` when there is none or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or index < len(self._metrics), timeout)
            return self._metrics[index] if index < len(self._metrics) else None

    def since(self, index: int) -> list[EpochMetrics]:
        """Return those from the ``index``-th on, without waiting."""
        with self._changed:
            return self._metrics[index:]


class TrainHandle(ABC):
    """Access to a run's metrics and result.

    On one device ``run()`` trains before it returns, so everything is here at once; with several
    ranks the run goes on behind the handle. Each of :meth:`metrics`, :meth:`next_metrics` and
    :meth:`poll_metrics` sees every epoch: reading by one takes nothing from another.

    Leaving a ``with`` block of a handle that was not joined asks the run to stop.
    """

    def __init__(self, feed: EpochFeed) -> None:
        self._feed = feed
        self._next = 0
        self._polled = 0

    def metrics(self) -> Iterator[EpochMetrics]:
        """Yield the metrics of each epoch, in order, from the first; waits for those to come."""
        index = 0
        while (found := self._feed.wait(index)) is not None:
            yield found
            index += 1

    def next_metrics(self, timeout: float | None = None) -> EpochMetrics | None:
        """Return the metrics of the next epoch not yet returned here.

        Args:
            timeout: Seconds to wait at most; ``None`` waits as long as the run goes on.

        Returns:
            ``None`` after the last one, or when the time is up.
        """
        found = self._feed.wait(self._next, timeout)
        self._next += found is not None
        return found

    def poll_metrics(self) -> list[EpochMetrics]:
        """Return what has been added since the last poll, without waiting."""
        fresh = self._feed.since(self._polled)
        self._polled += len(fresh)
        return fresh

    @property
    @abstractmethod
    def devices(self) -> tuple[torch.device, ...]:
        """Devices that the run started with, one for each rank."""

    @property
    def world_size(self) -> int:
        """Number of ranks that the run started with."""
        return len(self.devices)

    @property
    @abstractmethod
    def step_stats(self) -> StepStats:
        """Which mode the steps of each batch shape ran in, why, and how fast.

        Raises:
            FlodlError: The steps ran in other processes.
        """

    @abstractmethod
    def portrait(self) -> Portrait:
        """Return what the run says of its model and settings; waits until a model is built."""

    @property
    def architecture_svg(self) -> str | None:
        """The model's picture, ``None`` where it is no graph; waits until a model is built."""
        return self.portrait().svg

    def setup_monitor(self, monitor: Monitor) -> None:
        """Show the model's identity and picture and the run's settings in a monitor.

        Waits until a model is built. A monitor that the run was given shows them by itself.
        """
        self.portrait().show(monitor)

    @abstractmethod
    def join(self, timeout: float | None = None) -> TrainedState:
        """Wait for the end of the run and return the trained state.

        Args:
            timeout: Seconds to wait at most; ``None`` waits as long as it takes.

        Raises:
            TimeoutError: The time is up; the run goes on.
            RankError: User code raised on a rank.
            RunFailed: The run ended without a usable result.
            RunInterrupted: It was stopped; its ``state`` is what had been trained by then.
        """

    @abstractmethod
    def stop(self, *, save: bool = True) -> None:
        """Ask the run to end in good order: after the batch at hand and a last average."""

    @abstractmethod
    def abort(self) -> None:
        """End the run at once, whatever is in progress."""

    @abstractmethod
    def status(self) -> RunStatus:
        """Return what the run does now."""

    @property
    @abstractmethod
    def report(self) -> RunReport:
        """What the run amounted to: its accounting, its deaths, its windows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
