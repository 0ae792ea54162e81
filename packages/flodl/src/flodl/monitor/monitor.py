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
from flodl.core.paths import ROOT
from flodl.core.resources import ResourceSample, host_body, sample_body
from flodl.device.sampler import ResourceSampler
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.console import ConsoleLines, VramReading
from flodl.monitor.errors import MonitorFinished
from flodl.monitor.eta import EtaEstimator
from flodl.monitor.exports import history_csv, history_log
from flodl.monitor.files import write_file
from flodl.monitor.history import EpochRecord, epoch_report, feed_body, gpu_metrics_of
from flodl.monitor.notebook import frame_html, history_html, show_html
from flodl.monitor.picture import ProfiledModel, Watchable, json_metadata, parameter_counts
from flodl.monitor.place import announcement, serve_place
from flodl.monitor.plane import RunPlane, SavedPage
from flodl.monitor.progress import ProgressMode, progress_output
from flodl.monitor.scope import EpochScope, StepReport
from flodl.monitor.speaker import Speaker
from flodl.monitor.termination import TerminationGuard
from flodl.monitor.values import MetricsLike, metric_values
from flodl.records.board import RunBoard
from flodl.records.cadence import ReportSchedule
from flodl.records.node import NodeReport
from flodl.records.record import RunStatus, Sink
from flodl.records.rollup import Reduction
from flodl.web.archive import MAX_BYTES, Theme

EndStatus = Literal["complete", "failed", "aborted"]
_RUN_STATUS: Mapping[EndStatus, RunStatus] = {
    "complete": "done",
    "failed": "failed",
    "aborted": "aborted",
}
_logger = logging.getLogger(__name__)


class Monitor:
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
        stream: Where lines go; ``None`` means standard output at the time of printing.
        sinks: Where records go as well, such as ``TensorBoardSink(...)``.
        clock: Source of seconds, monotonic; for tests.

    Raises:
        ConfigError: ``total_epochs`` or ``start_epoch`` is out of range, or there is no such
            progress mode.
        MissingExtraError: The bar's library is not installed.

    Examples:
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
        self.total_epochs = total_epochs
        self._announced_epochs = total_epochs
        self.name = name
        self._clock = clock
        self._started = clock()
        self._speaker = Speaker(progress_output(progress, total_epochs, stream))
        self._lines = ConsoleLines(total_epochs)
        self._eta = EtaEstimator(total_epochs)
        self._history: list[EpochRecord] = []
        self._reports = 0
        self._tick = 0
        self._steps = 0
        self._epoch_samples = 0.0
        self._feeds_tree = True
        self._user_metadata: dict[str, Any] = {}
        self._model_metadata: dict[str, Any] = {}
        self._is_finished = False
        self._plane = RunPlane(RunBoard(clock=clock), clock=clock, on_tick=self._speaker.say_alerts)
        self._describe(start_epoch)
        self.board.tree.listen(self._speaker.notice)
        self._plane.add_sinks(sinks)
        self._sampler = ResourceSampler()
        self._resources = self._sampler.reader()
        self._window_resources = self._sampler.reader()
        self._sampler.start()
        self._guard = TerminationGuard(self._abort)

    # ------------------------------------------------------------ the run

    @property
    def board(self) -> RunBoard:
        """What viewers of the run see."""
        return self._plane.board

    @property
    def plane(self) -> RunPlane:
        """What reads the board: portal, record log, sinks, saved pages."""
        return self._plane

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
        resources, _ = self._resources.read()
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
        self._publish(record, _samples_of(metrics), restart=is_repeated)
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
        self._check_epoch(epoch, 0.0)
        self._plane.start()
        self.board.start()
        started, before = self._clock(), self._steps
        schedule = ReportSchedule(self._reports, steps)

        def report(part: StepReport) -> None:
            self._steps = before + part.step_in_epoch
            self._publish_part(epoch, part)
            if steps:
                self._speaker.advance(epoch + part.step_in_epoch / steps)

        scope = EpochScope(schedule, report, self._clock)
        yield scope
        values = scope.finish()
        self._steps = before + scope.steps
        self._epoch_samples = scope.samples
        self.log(epoch, self._clock() - started, values)

    def reports_per_epoch(self, count: int) -> None:
        """Report this often within each epoch that is followed by :meth:`epoch`.

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
        self._guard.release()
        self._sampler.stop()
        self._plane.finish(_RUN_STATUS[status], linger=linger)
        metrics = self._history[-1].metrics if self._history else {}
        self._speaker.close()
        self._speaker.line(self._lines.summary(status, self._clock() - self._started, metrics))

    def finish_with(self, graph: ProfiledModel, *, linger: float = 0.0) -> None:
        """Show the graph colored by what its nodes cost, then :meth:`finish`."""
        if not self._is_finished:
            self.watch_profiled(graph)
        self.finish(linger=linger)

    # ------------------------------------------------------------ the portal

    def serve(
        self,
        port: int = 3000,
        *,
        host: str | None = None,
        token: str | None = None,
        allowed_hosts: Sequence[str] = (),
        isolate: bool = False,
    ) -> str:
        """Serve the live portal, and return its address.

        It listens on this machine alone unless told otherwise. Where others reach it, viewers
        must know a token, which is made up and printed if none is given.

        Args:
            port: 0 picks a free one.
            host: Address to listen on; ``None`` for ``FLODL_DASHBOARD_BIND``, or loopback.
            token: What viewers must know; ``None`` for ``FLODL_DASHBOARD_TOKEN``.
            allowed_hosts: More names that the server may be called by.
            isolate: Serve from a process of its own instead of a thread.

        Raises:
            DashboardAlreadyServing: It is served on another port.
            DashboardBindError: It cannot listen there.
            MonitorFinished: The monitor has finished.
        """
        self._check_running("serve()")
        is_new = self._plane.portal is None
        place = serve_place(
            port, host=host, token=token, allowed_hosts=allowed_hosts, isolate=isolate
        )
        portal = self._plane.serve(place)
        if is_new:
            for line in announcement(place, portal.port):
                self._speaker.line(line)
        return portal.url

    def watch(self, graph: Watchable) -> None:
        """Show a graph's picture, identity and parameter counts."""
        self.set_svg(graph.svg())
        self._identify(graph)

    def watch_profiled(self, graph: ProfiledModel) -> None:
        """Show a graph's picture colored by what its nodes cost, its identity and counts."""
        self.set_svg(graph.svg_with_profile())
        self._identify(graph)

    def set_svg(self, svg: str) -> None:
        """Show this picture of the model; whatever could act in it is dropped.

        Raises:
            SvgError: It is no SVG picture.
        """
        from flodl.web.svg import safe_svg

        self.board.set_svg(safe_svg(svg))

    def set_identity(self, label: str | None, hash: str | None) -> None:  # noqa: A002 (its name)
        """Show this label and structural hash of the model."""
        self.board.set_facts(label=label, hash=hash)
        self.board.tree.describe(label=label, hash=hash)

    def set_metadata(self, meta: Mapping[str, Any]) -> None:
        """Show these settings of the run; they win over what a watched graph says of itself."""
        self._user_metadata = json_metadata(meta)
        self._show_metadata()

    # ------------------------------------------------------------ files

    def save_html(
        self,
        path: str | Path,
        *,
        theme: Theme = "auto",
        max_bytes: int = MAX_BYTES,
        every: float | None = None,
    ) -> None:
        """Save the whole portal as one offline file when the run ends, however it ends.

        Args:
            path: The file.
            theme: Look that is pinned in it, or ``"auto"``.
            max_bytes: Its size at most; a longer run gets coarser.
            every: Also save it every so many seconds.

        Raises:
            ConfigError: There is no such theme, or ``every`` is not positive.
        """
        self._plane.save_page(
            SavedPage(path=Path(path), theme=theme, max_bytes=max_bytes, every=every)
        )
        self._guard.watch_signal()

    def save_now(self, path: str | Path) -> Path:
        """Save the whole portal as one offline file at once.

        Raises:
            MonitorExportError: It cannot be written.
        """
        return self._plane.save_now(SavedPage(path=Path(path)))

    def export_csv(self, path: str | Path) -> Path:
        """Write the history as CSV, one row per epoch.

        Raises:
            MonitorExportError: It cannot be written.
        """
        return write_file(path, history_csv(self._history).encode())

    def write_log(self, path: str | Path) -> Path:
        """Write the epoch lines as a text file.

        Raises:
            MonitorExportError: It cannot be written.
        """
        text = history_log(self._history, self._lines, self._clock() - self._started)
        return write_file(path, text.encode())

    def record_log(self, folder: str | Path, max_bytes: int = 0) -> None:
        """Write every record to a tree of JSON-lines files, whose paths are the record paths.

        Args:
            folder: Where the tree begins.
            max_bytes: Cap per node; 0 means 32 MiB.

        Raises:
            ConfigError: ``max_bytes`` is out of range, or a log is open already.
            RecordLogError: The folder cannot be written.
        """
        self._plane.open_log(folder, max_bytes)

    def scalar_reduction(self, key: str, reduction: Reduction) -> None:
        """Say how a scalar of yours rolls up over ranks; the mean unless said otherwise.

        Raises:
            ReductionConflict: The key's reduction is fixed.
            ConfigError: There is no such reduction.
        """
        self.board.tree.declare(key, reduction)

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

    # ------------------------------------------------------------ inside

    def _check_running(self, what: str) -> None:
        if self._is_finished:
            raise MonitorFinished(f"Monitor.{what}: the monitor has finished")

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

    def _describe(self, start_epoch: int) -> None:
        self.board.tree.describe(
            id=f"{int(time.time() * 1000):x}",
            label=self.name,
            hash=None,
            total_epochs=self.total_epochs,
            start_epoch=start_epoch,
            started_ts=int(time.time() * 1000),
            mode="solo",
            reports_per_epoch=0,
        )
        self.board.set_facts(label=self.name)

    def _publish(self, record: EpochRecord, samples: int, *, restart: bool) -> None:
        board = self.board
        board.set_progress(epoch=record.epoch + 1, total=self.total_epochs, eta=record.eta_secs)
        if self._feeds_tree:
            work = samples or int(self._take_epoch_samples())
            report = epoch_report(record, work=work, step=self._steps or None, restart=restart)
            board.tree.publish([report])
        board.add_epoch(feed_body(record, self.total_epochs))

    def _publish_part(self, epoch: int, part: StepReport) -> None:
        sample, _ = self._window_resources.read()
        metrics = dict(part.means)
        if part.seconds > 0:
            metrics["throughput"] = part.samples / (part.seconds * 1000)
        report = NodeReport(
            path=ROOT,
            metrics=metrics,
            work=part.samples,
            tick=self._tick,
            epoch=epoch,
            step=self._steps,
            res=sample_body(sample),
            host_res=host_body(sample),
        )
        self._tick += 1
        self.board.tree.publish([report])

    def _take_epoch_samples(self) -> float:
        samples, self._epoch_samples = self._epoch_samples, 0.0
        return samples

    def _identify(self, graph: Watchable) -> None:
        self.set_identity(graph.label, graph.structural_hash)
        self._model_metadata = {"parameters": parameter_counts(graph)}
        self._show_metadata()

    def _show_metadata(self) -> None:
        self.board.set_metadata({**self._model_metadata, **self._user_metadata})

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


def _samples_of(metrics: MetricsLike) -> int:
    return metrics.samples_processed if isinstance(metrics, EpochMetrics) else 0
