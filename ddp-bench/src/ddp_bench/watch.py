"""What of a cell's training is shown and kept for people, beside its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ddp_bench.errors import UsageError
from ddp_bench.run_folder import DASHBOARD
from flodl.monitor import Timeline
from flodl.trainer.builder import TrainerBuilder
from flodl.web.archive import Theme


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """The watching options of the command line; all are off unless set.

    Raises:
        UsageError: Options do not fit together.
    """

    save_dashboard: bool = False
    """Whether the whole portal is kept as one page beside the result."""
    dashboard_theme: Theme | None = None
    """Look of that page."""
    record_log: Path | None = None
    """Folder of every record; each cell has a folder of its own in it."""
    reports_per_epoch: int = 0
    monitor: int | None = None
    """Port that the live portal is served on, cell after cell."""

    def __post_init__(self) -> None:
        if self.dashboard_theme is not None and not self.save_dashboard:
            raise UsageError(
                f"--dashboard-theme {self.dashboard_theme}: no page is saved that could have it",
                hint="add --save-dashboard, or leave the theme out",
            )

    def apply(
        self, builder: TrainerBuilder, *, staged: Path, cell: str, timeline: Timeline
    ) -> TrainerBuilder:
        """Return the builder with these options set.

        Args:
            builder: The cell's training.
            staged: Folder of the cell's new files.
            cell: ``<model>/<mode>``.
            timeline: Kept for every cell.
        """
        builder = builder.timeline(timeline).reports_per_epoch(self.reports_per_epoch)
        if self.save_dashboard:
            builder = builder.save_dashboard(staged / DASHBOARD)
        if self.dashboard_theme is not None:
            builder = builder.dashboard_theme(self.dashboard_theme)
        if self.record_log is not None:
            builder = builder.record_log(self.record_log / cell)
        if self.monitor is not None:
            builder = builder.dashboard(self.monitor)
        return builder
