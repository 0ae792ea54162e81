"""Records in TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flodl.core.paths import ROOT
from flodl.monitor.sinks.points import (
    alerts_of,
    checked_levels,
    flat_settings,
    library,
    points_of,
)
from flodl.records.record import Record, RunStatus


class TensorBoardSink:
    """Writes event files: the root as one run, each other level as a run below it.

    Values of windows keep their names, with the optimizer step; those of epochs are in the group
    ``epoch``, with the epoch.

    Args:
        folder: Where event files go.
        levels: Record paths to write.

    Raises:
        MissingExtraError: TensorBoard is not installed.
        RecordPathError: A level is no record path.
    """

    def __init__(self, folder: str | Path, *, levels: Sequence[str] = (ROOT,)) -> None:
        library("tensorboard", "TensorBoardSink", extra="tensorboard")
        self._writer_type = library(
            "torch.utils.tensorboard", "TensorBoardSink", extra="tensorboard"
        ).SummaryWriter
        self._folder = Path(folder)
        self._levels = checked_levels(levels)
        self._writers: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._last: dict[str, float] = {}
        self._alerts = 0

    def open(self, run: Mapping[str, Any]) -> None:
        """Begin the run."""
        self._settings = flat_settings(run.get("metadata", {}))
        self._writer(ROOT).add_text("run", str(run.get("label") or run.get("id")))

    def write(self, records: Sequence[Record]) -> None:
        """Write the points of the chosen levels, and alerts as texts."""
        for point in points_of(records, self._levels):
            tag = f"epoch/{point.name}" if point.is_epoch else point.name
            self._writer(point.path).add_scalar(
                tag, point.value, global_step=point.step, walltime=point.ts_ms / 1000
            )
            if point.path == ROOT:
                self._last[f"final/{tag}"] = point.value
        for alert in alerts_of(records):
            self._alerts += 1
            text = f"{alert.severity}: {alert.name} at {alert.path}: {alert.detail}"
            self._writer(ROOT).add_text("alerts", text, global_step=self._alerts)
        for writer in self._writers.values():
            writer.flush()

    def close(self, status: RunStatus) -> None:
        """Write the settings with the last values, and end."""
        root = self._writer(ROOT)
        settings = {key: "none" if v is None else v for key, v in self._settings.items()}
        root.add_hparams({**settings, "status": status}, self._last, run_name=".")
        for writer in self._writers.values():
            writer.close()

    def _writer(self, path: str) -> Any:
        if path not in self._writers:
            below = self._folder / path.removeprefix(ROOT).strip("/")
            self._writers[path] = self._writer_type(log_dir=str(below))
        return self._writers[path]
