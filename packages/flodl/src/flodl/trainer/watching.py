"""What a run shows of itself: the settings, and the monitor that carries them out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from flodl.graph import Graph
from flodl.metrics.scalars import ScalarScope
from flodl.monitor.monitor import Monitor
from flodl.monitor.place import ServePlace, serve_place
from flodl.monitor.plane import RunPlane
from flodl.monitor.saved_page import SavedPage
from flodl.monitor.timeline import Timeline
from flodl.records import Reduction, Sink
from flodl.web.archive import Theme

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardOptions:
    """Where the live portal is served."""

    port: int = 3000
    """0 picks a free one."""
    host: str | None = None
    token: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordLogOptions:
    """Where every record is written as JSON lines."""

    folder: str | Path
    max_bytes: int = 0
    """Cap per node; 0 means 32 MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedDashboard:
    """The whole portal as one offline file, written when the run ends, however it ends."""

    path: str | Path
    every: float | None = None
    """Also written every so many seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watching:
    """All that a run was told to show; off unless something is set."""

    dashboard: DashboardOptions | None = None
    record_log: RecordLogOptions | None = None
    save_dashboard: SavedDashboard | None = None
    dashboard_theme: Theme = "auto"
    scalar_reduction: Mapping[str, Reduction] = field(default_factory=dict)
    sinks: Sequence[Sink] = ()
    reports_per_epoch: int = 0
    timeline: Timeline | None = None
    profile_graph: bool = False

    @property
    def is_on(self) -> bool:
        """Whether anything needs a monitor."""
        return bool(
            self.dashboard
            or self.record_log
            or self.save_dashboard
            or self.scalar_reduction
            or self.sinks
            or self.reports_per_epoch
            or self.timeline is not None
            or self.profile_graph
        )

    def problems(self) -> list[str]:
        """Return what is wrong with the combination of settings."""
        problems = [
            f"sinks: {sink!r} is no sink; it must have open, write and close"
            for sink in self.sinks
            if not all(callable(getattr(sink, name, None)) for name in ("open", "write", "close"))
        ]
        if self.dashboard_theme != "auto" and self.save_dashboard is None:
            problems.append(
                "dashboard_theme is set and save_dashboard is not; it is the saved page's look"
            )
        return [*problems, *_type_problems(self.reports_per_epoch, self.timeline)]

    def monitor(self, given: Monitor | None, epochs: int) -> Monitor | None:
        """Return the monitor of the run: the given one, or a new one where one is needed.

        Raises:
            ConfigError: A setting is refused by the part that carries it out.
            DashboardBindError: The portal cannot listen there.
            RecordLogError: The folder of the record log cannot be written.
        """
        if not self.is_on:
            return given
        monitor = Monitor(epochs) if given is None else given
        try:
            self._apply(monitor)
        except BaseException:
            if given is None:
                monitor.finish(status="failed")
            raise
        return monitor

    def equip(
        self, plane: RunPlane, given: Sequence[Sink] = (), *, devices: Sequence[int] = ()
    ) -> None:
        """Carry the settings out where the ranks of a run are directed; the portal comes after.

        Args:
            plane: What reads the run's board there.
            given: Sinks of the monitor that the user made.
            devices: Physical indices of the GPUs that ranks use on this host.

        Raises:
            ConfigError: A setting is refused by the part that carries it out.
            RecordLogError: The folder of the record log cannot be written.
        """
        for key, reduction in self.scalar_reduction.items():
            plane.board.tree.declare(key, reduction)
        if self.record_log is not None:
            plane.open_log(self.record_log.folder, self.record_log.max_bytes)
        if self.save_dashboard is not None:
            saved = self.save_dashboard
            plane.save_page(
                SavedPage(path=Path(saved.path), theme=self.dashboard_theme, every=saved.every)
            )
        if self.timeline is not None:
            plane.add_timeline(self.timeline, devices)
        plane.add_sinks([*given, *self.sinks])
        plane.start()

    @property
    def place(self) -> ServePlace | None:
        """Where the portal is to be served, ``None`` for nowhere."""
        if self.dashboard is None:
            return None
        wanted = self.dashboard
        return serve_place(wanted.port, host=wanted.host, token=wanted.token)

    def show_model(self, monitor: Monitor, model: nn.Module) -> None:
        """Show the model's picture and identity where somebody may look at them."""
        if isinstance(model, Graph) and (self.dashboard or self.save_dashboard):
            monitor.watch(model)

    def show_profile(
        self, monitor: Monitor, model: nn.Module, forward: Callable[[], object]
    ) -> None:
        """Show the model's picture colored by what its nodes cost in a forward pass.

        Captured and compiled steps cannot be timed node by node, so the pass is one of its own:
        eager, without gradients, in evaluation mode, and with nothing left behind. What goes
        wrong in it is a warning.

        Args:
            monitor: Where it is shown.
            model: The model; only graphs can be timed.
            forward: Takes the pass.
        """
        if not self.profile_graph or not isinstance(model, Graph):
            return
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(), ScalarScope().active():
                forward()
                with model.profiling_run():
                    forward()
            monitor.watch_profiled(model)
        except Exception as error:  # noqa: BLE001 (an observer must not end what it observes)
            _logger.warning("profile_graph: the model could not be timed: %s", error)
        finally:
            model.train(was_training)

    def _apply(self, monitor: Monitor) -> None:
        for key, reduction in self.scalar_reduction.items():
            monitor.scalar_reduction(key, reduction)
        if self.record_log is not None:
            monitor.record_log(self.record_log.folder, self.record_log.max_bytes)
        if self.save_dashboard is not None:
            saved = self.save_dashboard
            monitor.save_html(saved.path, theme=self.dashboard_theme, every=saved.every)
        if self.reports_per_epoch:
            monitor.reports_per_epoch(self.reports_per_epoch)
        if self.timeline is not None:
            monitor.timeline(self.timeline)
        if self.sinks:
            monitor.plane.add_sinks(self.sinks)
        if self.dashboard is not None:
            place = self.dashboard
            monitor.serve(place.port, host=place.host, token=place.token)


def _type_problems(reports: object, timeline: object) -> list[str]:
    problems = []
    if isinstance(reports, bool) or not isinstance(reports, int) or reports < 0:
        problems.append(f"reports_per_epoch={reports!r}: must be a whole number, 0 for none")
    if timeline is not None and not isinstance(timeline, Timeline):
        problems.append(f"timeline={timeline!r}: must be a flodl.monitor.Timeline")
    return problems
