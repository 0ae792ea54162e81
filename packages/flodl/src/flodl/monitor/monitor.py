"""The monitor: one call per epoch, and the run can be followed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TextIO

from flodl.core.errors import ConfigError
from flodl.core.log import warn_once
from flodl.core.resources import ResourceSample
from flodl.device.sampler import ResourceSampler
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.console import ConsoleLines, VramReading
from flodl.monitor.exports import history_csv, history_log
from flodl.monitor.feeding import MonitorFeed, describe
from flodl.monitor.files import write_file
from flodl.monitor.history import EpochRecord, gpu_metrics_of
from flodl.monitor.notebook import frame_html, history_html, show_html
from flodl.monitor.outlets import MonitorOutlets
from flodl.monitor.picture import ProfiledModel
from flodl.monitor.plane import RunPlane
from flodl.monitor.progress import ProgressMode, Silence, progress_output
from flodl.monitor.role import is_primary
from flodl.monitor.scope import EpochScope, StepReport
from flodl.monitor.speaker import Speaker
from flodl.monitor.values import MetricsLike, metric_values
from flodl.records.board import RunBoard
from flodl.records.cadence import ReportSchedule
from flodl.records.eta import EtaEstimator
from flodl.records.events import EventKind
from flodl.records.record import RunStatus, Sink

EndStatus = Literal["complete", "failed", "aborted"]
_RUN_STATUS: Mapping[EndStatus, RunStatus] = {
    "complete": "done",
    "failed": "failed",
    "aborted": "aborted",
}
_logger = logging.getLogger(__name__)


class Monitor(MonitorOutlets):
    """Prints a line for each epoch, with the time left, and shows the run to whoever looks.

    It samples this host and the run's GPUs in the background, keeps the history, and serves the
    portal, writes files and feeds sinks where asked. It drives nothing: no fault in it stops or
    changes training. Used as a context manager, an exception ends the run as ``failed``.

    Args:
        total_epochs: Number of epochs of the run.
        start_epoch: First epoch, for a resumed run; estimates count from there.
        name: Title printed before the first line, or ``None`` for none.
        progress: ``"plain"`` prints lines, ``"rich"`` and ``"tqdm"`` keep a live bar below them,
            ``"none"`` keeps silent and only records.
        stream: Where lines go; ``None`` means standard error at the time of printing.
        sinks: Where records go as well, such as ``TensorBoardSink(...)``.
        clock: Source of seconds, monotonic; for tests.

    Raises:
        ConfigError: ``total_epochs`` or ``start_epoch`` is out of range, or there is no such
            progress mode.
        MissingExtraError: The bar's library is not installed.

    Examples:
        >>> import sys
        >>> monitor = Monitor(1, stream=sys.stdout)
        >>> record = monitor.log(0, 0.049, {"loss": 1.5264})
          epoch 1/1  loss=1.5264  [49ms]
    """

    def __init__(
        self,
        total_epochs: int,
        *,
        start_epoch: int = 0,
        name: str | None = None,
        progress: ProgressMode = "plain",
        stream: TextIO | None = None,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if total_epochs < 1:
            raise ConfigError(f"Monitor(total_epochs={total_epochs}): must be at least 1")
        if not 0 <= start_epoch < total_epochs:
            raise ConfigError(
                f"Monitor(start_epoch={start_epoch}): must lie in [0, {total_epochs})"
            )
        primary = is_primary()
        output = progress_output(progress, total_epochs, stream)
        speaker = Speaker(output if primary else Silence())
        board = RunBoard(clock=clock)
        plane = RunPlane(board, clock=clock, on_tick=speaker.say_alerts)
        super().__init__(plane, speaker, sinks, name=name, is_primary=primary)
        self.total_epochs = total_epochs
        self._announced_epochs = total_epochs
        self._clock = clock
        self._started = clock()
        self._lines = ConsoleLines(total_epochs)
        self._eta = EtaEstimator(total_epochs)
        self._history: list[EpochRecord] = []
        self._reports = 0
        self._feed = MonitorFeed(board)
        board.tree.listen(speaker.notice)
        describe(board, name, total_epochs, start_epoch)
        self._sampler = ResourceSampler()
        self._resources = self._sampler.reader()
        self._window_resources = self._sampler.reader()
        if primary:
            self._sampler.start()

    # ------------------------------------------------------------ the run

    @property
    def sampler(self) -> ResourceSampler:
        """What reads this host and its GPUs."""
        return self._sampler

    @property
    def history(self) -> Sequence[EpochRecord]:
        """The logged epochs, oldest first."""
        return tuple(self._history)

    def log(self, epoch: int, duration: float | timedelta, metrics: MetricsLike) -> EpochRecord:
        """Record one finished epoch and print its line.

        Args:
            epoch: 0-based. One beyond the end lengthens the run; one that was there before is
                appended again.
            duration: What its training took, in seconds or as a ``timedelta``.
            metrics: Values by name, as a mapping or pairs; or a graph, whose flushed metrics
                count with those of its parts; or a graph with extra values; or the
                ``EpochMetrics`` of a run, whose loss comes first, then the evaluation, then
                recorded scalars by name.

        Raises:
            ConfigError: ``epoch`` or ``duration`` is negative.
            MonitorFinished: The monitor has finished.
            MetricTypeError: A value is no single number; nothing was recorded.
        """
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
        self._check_epoch(epoch, seconds)
        self._plane.start()
        values = metric_values(metrics)
        left = self._eta.observe(epoch, seconds, self._clock())
        resources, spreads = self._resources.read()
        record = EpochRecord(
            epoch=epoch,
            duration_secs=seconds,
            metrics=values,
            resources=resources,
            gpu_metrics=gpu_metrics_of(metrics) if isinstance(metrics, EpochMetrics) else (),
            ts=time.time(),
            eta_secs=None if epoch + 1 == self.total_epochs else left,
        )
        self._print_epoch(record)
        is_repeated = any(held.epoch >= epoch for held in self._history[-1:])
        self._history.append(record)
        samples = metrics.samples_processed if isinstance(metrics, EpochMetrics) else 0
        self._feed.publish_epoch(
            record, self.total_epochs, spreads, samples=samples, restart=is_repeated
        )
        self._mark_epoch(record, metrics)
        self._speaker.say_alerts()
        return record

    @contextmanager
    def epoch(self, epoch: int, *, steps: int | None = None) -> Iterator[EpochScope]:
        """Follow one epoch of your own loop step by step; it is logged when the block ends.

        Args:
            epoch: 0-based.
            steps: Steps of the epoch, for reports in between; ``None`` when unknown.

        Raises:
            As :meth:`log`, at the end of the block.

        Examples:
            >>> monitor = Monitor(1, progress="none")
            >>> with monitor.epoch(0, steps=2) as epoch:
            ...     epoch.step(loss=0.5, samples=32)
            ...     epoch.step(loss=0.3, samples=32)
            >>> monitor.history[0].metrics
            {'loss': 0.4}
        """
        started = self._clock()
        scope = self.follow(epoch, steps=steps)
        yield scope
        self.log(epoch, self._clock() - started, scope.finish())

    def follow(
        self,
        epoch: int,
        *,
        steps: int | None = None,
        global_step: int | None = None,
        accumulate: int = 1,
    ) -> EpochScope:
        """Follow one epoch step by step, as :meth:`epoch`; whoever asks for it logs the epoch.

        Args:
            epoch: 0-based.
            steps: Steps of the epoch, for reports in between; ``None`` for those of the epoch
                before, or unknown in the first.
            global_step: Optimizer steps of the run before it; ``None`` for those seen here.
            accumulate: Steps of the loop for one of the optimizer.

        Raises:
            ConfigError: ``epoch`` is negative.
            MonitorFinished: The monitor has finished.
        """
        self._check_epoch(epoch, 0.0)
        self._plane.start()
        self.board.start()
        self._mark(EventKind.epoch_start(epoch=epoch))
        before = self._feed.steps if global_step is None else global_step
        known = steps or self._feed.steps_per_epoch or None

        def report(part: StepReport) -> None:
            self._feed.steps = before + part.step_in_epoch // accumulate
            self._feed.publish_part(epoch, part, *self._window_resources.read())
            if known:
                done = min(1.0, part.step_in_epoch / known)
                left = self._eta.within(epoch, done)
                self.board.set_progress(epoch=epoch, total=self.total_epochs, eta=left)
                self._speaker.advance(epoch + done)

        def end(scope: EpochScope) -> None:
            after = before - (-scope.steps // accumulate)
            self._feed.end_steps(after, scope.steps, scope.samples)

        return EpochScope(ReportSchedule(self._reports, known), report, self._clock, on_end=end)

    def reports_per_epoch(self, count: int) -> None:
        """Report this often within each epoch that is followed step by step.

        Raises:
            ConfigError: ``count`` is negative.
        """
        ReportSchedule(count, None)
        self._reports = count
        self.board.tree.describe(reports_per_epoch=count)

    def finish(self, *, status: EndStatus = "complete", linger: float = 0.0) -> None:
        """Print the summary line and end everything that was started. Further calls do nothing.

        Viewers are told, saved pages written, the record log and the sinks closed and the port
        freed; pages that are open get a few seconds to fetch the whole run.

        Args:
            status: How the run ended.
            linger: Seconds that the portal stays open in any case.
        """
        if self._is_finished:
            return
        self._is_finished = True
        self._sampler.stop()
        self._do({"op": "finish", "status": _RUN_STATUS[status], "linger": linger})
        self._plane.finish(_RUN_STATUS[status])
        self._guard.release()
        metrics = self._history[-1].metrics if self._history else {}
        self._speaker.close()
        self._speaker.line(self._lines.summary(status, self._clock() - self._started, metrics))

    def finish_with(self, graph: ProfiledModel, *, linger: float = 0.0) -> None:
        """Show the graph colored by what its nodes cost, then :meth:`finish`."""
        if not self._is_finished:
            self.watch_profiled(graph)
        self.finish(linger=linger)

    # ------------------------------------------------------------ files

    def export_csv(self, path: str | Path) -> Path:
        """Write the history as CSV, one row per epoch.

        Raises:
            MonitorExportError: It cannot be written.
        """
        if not self._is_primary:
            return Path(path)
        return write_file(path, history_csv(self._history).encode())

    def write_log(self, path: str | Path) -> Path:
        """Write the epoch lines as a text file.

        Raises:
            MonitorExportError: It cannot be written.
        """
        if not self._is_primary:
            return Path(path)
        text = history_log(self._history, self._lines, self._clock() - self._started)
        return write_file(path, text.encode())

    def history_frame(self) -> Any:
        """Return the history as a pandas ``DataFrame``, one row per epoch.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        from flodl.monitor.frame import history_frame

        return history_frame(self._history)

    # ------------------------------------------------------------ notebooks

    def display(self, *, embed_origin: str | None = None) -> None:
        """Show the run in a notebook: the portal where it is served, else a chart and a table.

        Args:
            embed_origin: Origin of the notebook's page, which may then show the portal in a frame.

        Raises:
            MissingExtraError: IPython is not installed.
        """
        if embed_origin is not None and self._plane.portal is not None:
            self._plane.portal.allow_embedding(embed_origin)
        show_html(self._repr_html_(framed=embed_origin is not None))

    def _repr_html_(self, *, framed: bool = False) -> str:
        portal = self._plane.portal
        if framed and portal is not None and not self._is_finished:
            return frame_html(portal.url)
        return history_html(self._history)

    # ------------------------------------------------------------ ending

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

    def _abort(self) -> None:
        self.finish(status="aborted")
        self._plane.finish("aborted")  # waits, where another thread is at it

    # ------------------------------------------------------------ inside

    def _check_epoch(self, epoch: int, seconds: float) -> None:
        self._check_running(f"log(epoch={epoch})")
        if epoch < 0:
            raise ConfigError(f"Monitor.log(epoch={epoch}): must lie in [0, {self.total_epochs})")
        if not seconds >= 0:
            raise ConfigError(f"Monitor.log(duration={seconds}): must not be negative")
        if epoch >= self.total_epochs:
            warn_once(
                _logger,
                "epochs beyond Monitor(total_epochs=%d) are logged; the total grows with them",
                self._announced_epochs,
            )
            self._grow(epoch + 1)

    def _grow(self, total: int) -> None:
        self.total_epochs = total
        self._lines.total = total
        self._eta.total = total
        self.board.tree.describe(total_epochs=total)

    def _mark(self, event: EventKind) -> None:
        if self._plane.timeline is not None:
            self._plane.timeline.event(event)

    def _mark_epoch(self, record: EpochRecord, metrics: MetricsLike) -> None:
        known = metrics if isinstance(metrics, EpochMetrics) else None
        if known is not None and known.eval_ms is not None:
            self._mark(EventKind.eval(ms=known.eval_ms))
        lr = record.metrics.get("lr") if known is None else known.lr
        loss = record.metrics.get("loss")
        self._mark(EventKind.epoch_end(epoch=record.epoch, loss=loss, lr=lr))

    def _print_epoch(self, record: EpochRecord) -> None:
        if self.name is not None and not self._history:
            self._speaker.line(self.name)
        self._speaker.line(
            self._lines.epoch(
                record.epoch,
                record.duration_secs,
                record.metrics,
                eta=record.eta_secs,
                vram=_vram_reading(record.resources),
            )
        )
        self._speaker.advance(record.epoch + 1)


def _vram_reading(resources: ResourceSample) -> VramReading | None:
    used, total = resources.vram_allocated_bytes, resources.vram_total_bytes
    if used is None or total is None:
        return None
    return VramReading(used_bytes=used, total_bytes=total, util_percent=resources.gpu_util_percent)
