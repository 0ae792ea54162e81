"""Records in MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flodl.core.paths import ROOT
from flodl.monitor.sinks.points import (
    alerts_of,
    checked_levels,
    flat_settings,
    library,
    point_name,
    points_of,
)
from flodl.records.record import Record, RunStatus

_FOREIGN = re.compile(r"[^\w\-. /:]", re.ASCII)
_BATCH = 1000
_MOST_PARAMETERS = 100
_MOST_VALUE_CHARS = 500


class MLflowSink:
    """Writes one MLflow run for the whole training, whatever its number of ranks.

    Args:
        uri: Tracking server or store, such as ``sqlite:///mlflow.db``.
        experiment: Name of the experiment; made if missing.
        levels: Record paths to write.

    Raises:
        MissingExtraError: MLflow is not installed.
        RecordPathError: A level is no record path.
    """

    def __init__(
        self, uri: str, *, experiment: str = "flodl", levels: Sequence[str] = (ROOT,)
    ) -> None:
        self._entities = library("mlflow.entities", "MLflowSink", extra="mlflow")
        tracking = library("mlflow.tracking", "MLflowSink", extra="mlflow")
        self._client = tracking.MlflowClient(tracking_uri=uri)
        self._experiment = experiment
        self._levels = checked_levels(levels)
        self._run_id = ""
        self._alerts: dict[str, int] = {}

    def open(self, run: Mapping[str, Any]) -> None:
        """Begin the run."""
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = (
            self._client.create_experiment(self._experiment)
            if known is None
            else known.experiment_id
        )
        made = self._client.create_run(experiment, run_name=run.get("label"))
        self._run_id = made.info.run_id
        settings = list(flat_settings(run.get("metadata", {})).items())[:_MOST_PARAMETERS]
        parameter = self._entities.Param
        parameters = [
            parameter(_legal(key), str(value)[:_MOST_VALUE_CHARS]) for key, value in settings
        ]
        self._client.log_batch(self._run_id, params=parameters)

    def write(self, records: Sequence[Record]) -> None:
        """Log the points of the chosen levels; alerts become tags with their newest text."""
        metric = self._entities.Metric
        points = [
            metric(_legal(point_name(point)), point.value, point.ts_ms, point.step)
            for point in points_of(records, self._levels)
        ]
        for start in range(0, len(points), _BATCH):
            self._client.log_batch(self._run_id, metrics=points[start : start + _BATCH])
        for alert in alerts_of(records):
            text = f"{alert.severity} at {alert.path}: {alert.detail}"
            self._client.set_tag(
                self._run_id, _legal(f"alert.{alert.name}"), text[:_MOST_VALUE_CHARS]
            )

    def close(self, status: RunStatus) -> None:
        """End the run."""
        ends = {"done": "FINISHED", "aborted": "KILLED"}
        self._client.set_terminated(self._run_id, status=ends.get(status, "FAILED"))


def _legal(name: str) -> str:
    return _FOREIGN.sub("_", name)
