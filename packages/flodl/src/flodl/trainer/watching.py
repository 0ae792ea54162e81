"""What a run shows of itself: the settings, and the monitor that carries them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from flodl.graph import Graph
from flodl.monitor.monitor import Monitor
from flodl.records import Reduction, Sink
from flodl.web.archive import Theme


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

    @property
    def is_on(self) -> bool:
        """Whether anything needs a monitor."""
        return bool(
            self.dashboard
            or self.record_log
            or self.save_dashboard
            or self.scalar_reduction
            or self.sinks
        )

    def problems(self) -> list[str]:
        """Return what is wrong with the combination of settings."""
        if self.dashboard_theme != "auto" and self.save_dashboard is None:
            return ["dashboard_theme is set and save_dashboard is not; it is the saved page's look"]
        return [
            f"sinks: {sink!r} is no sink; it must have open, write and close"
            for sink in self.sinks
            if not all(callable(getattr(sink, name, None)) for name in ("open", "write", "close"))
        ]

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

    def show_model(self, monitor: Monitor, model: nn.Module) -> None:
        """Show the model's picture and identity where somebody may look at them."""
        if isinstance(model, Graph) and (self.dashboard or self.save_dashboard):
            monitor.watch(model)

    def _apply(self, monitor: Monitor) -> None:
        for key, reduction in self.scalar_reduction.items():
            monitor.scalar_reduction(key, reduction)
        if self.record_log is not None:
            monitor.record_log(self.record_log.folder, self.record_log.max_bytes)
        if self.save_dashboard is not None:
            saved = self.save_dashboard
            monitor.save_html(saved.path, theme=self.dashboard_theme, every=saved.every)
        if self.sinks:
            monitor.plane.add_sinks(self.sinks)
        if self.dashboard is not None:
            place = self.dashboard
            monitor.serve(place.port, host=place.host, token=place.token)
