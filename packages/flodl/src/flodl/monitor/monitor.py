"""The monitor: one call per epoch, and the run can be followed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Literal, Self, TextIO

from flodl.core.errors import ConfigError
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.console import ConsoleLines
from flodl.monitor.eta import EtaEstimator

MetricsLike = Mapping[str, float] | EpochMetrics


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRecord:
    """One logged epoch."""

    epoch: int
    """0-based."""
    duration_secs: float
    metrics: dict[str, float]
    eta_secs: float | None
    """Estimated seconds left, or ``None`` after the last epoch."""


class Monitor:
    """Prints a line for each epoch, with the time left, and keeps the history.

    Used as a context manager, an exception ends the run as ``failed``.

    Args:
        total_epochs: Number of epochs of the run.
        start_epoch: First epoch, for a resumed run; estimates count from there.
        name: Title printed before the first line, or ``None`` for none.
        progress: ``"plain"`` prints lines, ``"none"`` keeps silent and only records.
        stream: Where lines go; ``None`` means standard output at the time of printing.
        clock: Source of seconds, monotonic; for tests.

    Raises:
        ConfigError: ``total_epochs`` or ``start_epoch`` is out of range.

    Example:
        >>> monitor = Monitor(1)
        >>> record = monitor.log(0, 0.049, {"loss": 1.5264})
          epoch 1/1  loss=1.5264  [49ms]
    """

    def __init__(
        self,
        total_epochs: int,
        *,
        start_epoch: int = 0,
        name: str | None = None,
        progress: Literal["plain", "none"] = "plain",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if total_epochs < 1:
            raise ConfigError(f"Monitor(total_epochs={total_epochs}): must be at least 1")
        if not 0 <= start_epoch < total_epochs:
            raise ConfigError(
                f"Monitor(start_epoch={start_epoch}): must lie in [0, {total_epochs})"
            )
        self.total_epochs = total_epochs
        self.name = name
        self._progress = progress
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._lines = ConsoleLines(total_epochs)
        self._eta = EtaEstimator(total_epochs)
        self._history: list[EpochRecord] = []
        self._finished = False

    @property
    def history(self) -> Sequence[EpochRecord]:
        """The logged epochs, oldest first."""
        return tuple(self._history)

    def log(self, epoch: int, duration: float | timedelta, metrics: MetricsLike) -> EpochRecord:
        """Record one finished epoch and print its line.

        Args:
            epoch: 0-based.
            duration: What its training took, in seconds or as a ``timedelta``.
            metrics: Values by name; or the ``EpochMetrics`` of a run, whose loss comes first,
                then the evaluation, then recorded scalars by name.

        Raises:
            ConfigError: ``epoch`` lies outside the run, or the monitor has finished.
        """
        if self._finished:
            raise ConfigError(f"Monitor.log(epoch={epoch}): the monitor has finished")
        if not 0 <= epoch < self.total_epochs:
            raise ConfigError(f"Monitor.log(epoch={epoch}): must lie in [0, {self.total_epochs})")
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
        values = _metric_values(metrics)
        left = self._eta.observe(epoch, seconds, self._clock())
        eta = None if epoch + 1 == self.total_epochs else left
        if self.name is not None and not self._history:
            self._print(f"{self.name}")
        self._print(self._lines.epoch(epoch, seconds, values, eta=eta))
        record = EpochRecord(epoch=epoch, duration_secs=seconds, metrics=values, eta_secs=eta)
        self._history.append(record)
        return record

    def finish(self, *, status: Literal["complete", "failed", "aborted"] = "complete") -> None:
        """Print the summary line. Further calls do nothing."""
        if self._finished:
            return
        self._finished = True
        metrics = self._history[-1].metrics if self._history else {}
        self._print(self._lines.summary(status, self._clock() - self._started, metrics))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.finish(status="aborted" if issubclass(kind, KeyboardInterrupt) else "failed")

    def _print(self, line: str) -> None:
        if self._progress == "none":
            return
        print(line, file=self._stream or sys.stdout, flush=True)


def _metric_values(metrics: MetricsLike) -> dict[str, float]:
    if isinstance(metrics, EpochMetrics):
        values = {"loss": metrics.avg_loss, **(metrics.eval or {})}
        return values | {name: metrics.scalars[name] for name in sorted(metrics.scalars)}
    return {name: float(value) for name, value in metrics.items()}
