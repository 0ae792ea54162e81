"""Records in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flodl.core.paths import ROOT
from flodl.monitor.sinks.points import (
    alerts_of,
    checked_levels,
    library,
    point_name,
    points_of,
)
from flodl.records.record import Record, RunStatus

_STEP = "flodl_step"


class WandbSink:
    """Writes one run of Weights & Biases for the whole training, whatever its number of ranks.

    Steps are a metric of their own, so that values that arrive out of order are kept.

    Args:
        project: Project of the run.
        mode: ``"offline"`` writes to the disk alone; ``None`` for the library's own choice.
        folder: Where files go; ``None`` for the current folder.
        levels: Record paths to write.

    Raises:
        MissingExtraError: The library is not installed.
        RecordPathError: A level is no record path.
    """

    def __init__(
        self,
        project: str,
        *,
        mode: Literal["online", "offline", "disabled"] | None = None,
        folder: str | Path | None = None,
        levels: Sequence[str] = (ROOT,),
    ) -> None:
        self._wandb = library("wandb", "WandbSink", extra="wandb")
        self._project = project
        self._mode = mode
        self._folder = folder
        self._levels = checked_levels(levels)
        self._run: Any = None
        self._notes: list[str] = []

    def open(self, run: Mapping[str, Any]) -> None:
        """Begin the run."""
        self._run = self._wandb.init(
            project=self._project,
            name=run.get("label"),
            config=dict(run.get("metadata", {})),
            mode=self._mode,
            dir=None if self._folder is None else str(self._folder),
            reinit="create_new",
        )
        self._run.define_metric(_STEP, hidden=True)
        self._run.define_metric("*", step_metric=_STEP)

    def write(self, records: Sequence[Record]) -> None:
        """Log the points of the chosen levels, one call per record; keep alerts as notes."""
        rows: dict[int, dict[str, float]] = {}
        for point in points_of(records, self._levels):
            row = rows.setdefault(point.seq, {})
            row[point_name(point)] = point.value
            row[_STEP] = point.step
        for row in rows.values():
            self._run.log(row)
        for alert in alerts_of(records):
            self._notes.append(f"{alert.severity}: {alert.name} at {alert.path}: {alert.detail}")
            self._run.notes = "\n".join(self._notes[-50:])
            if alert.name not in (self._run.tags or ()):
                self._run.tags = (*(self._run.tags or ()), alert.name)

    def close(self, status: RunStatus) -> None:
        """End the run."""
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "done" else 1)
