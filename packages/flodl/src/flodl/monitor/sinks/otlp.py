"""Records in OpenTelemetry, by its own protocol over HTTP."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flodl.core.errors import ConfigError
from flodl.core.paths import ROOT
from flodl.monitor.sinks.points import Point, checked_levels, library, points_of
from flodl.records.record import Record, RunStatus

_PROTO = "opentelemetry.proto"
_FOREIGN = re.compile(r"[^A-Za-z0-9_.\-/]")
_MOST_NAME_CHARS = 240
_TIMEOUT_S = 10.0
# numbers of the protocol's severities: INFO, WARN, FATAL
_SEVERITIES = {"info": 9, "warn": 13, "critical": 21}


class OtlpSink:
    """Sends metrics as gauges and alerts as log events to an OpenTelemetry collector.

    A point keeps the time of its record. Gauges are named ``flodl.<key>`` and have the record
    path and the cadence, ``window`` or ``epoch``, as attributes.

    Args:
        endpoint: Address of the collector, such as ``http://localhost:4318``.
        headers: More headers, for example to authenticate.
        levels: Record paths to send; alerts are those of the whole run.

    Raises:
        MissingExtraError: The protocol's library is not installed.
        ConfigError: ``endpoint`` is no web address.
        RecordPathError: A level is no record path.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | None = None,
        levels: Sequence[str] = (ROOT,),
    ) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"OtlpSink({endpoint!r}): must begin with http:// or https://")
        what, extra = "OtlpSink", "otlp"
        self._metrics = library(
            f"{_PROTO}.collector.metrics.v1.metrics_service_pb2", what, extra=extra
        )
        self._logs = library(f"{_PROTO}.collector.logs.v1.logs_service_pb2", what, extra=extra)
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"content-type": "application/x-protobuf", **(headers or {})}
        self._levels = checked_levels(levels)
        self._resource: dict[str, str] = {}

    def open(self, run: Mapping[str, Any]) -> None:
        """Take note of the run's identity, which every message carries."""
        named = {
            "service.name": "flodl",
            "service.instance.id": run.get("id"),
            "flodl.run.label": run.get("label"),
            "flodl.run.hash": run.get("hash"),
            "flodl.run.mode": run.get("mode"),
        }
        self._resource = {key: str(value) for key, value in named.items() if value is not None}

    def write(self, records: Sequence[Record]) -> None:
        """Send the points of the chosen levels, and the alerts of the run."""
        by_name: dict[str, list[Point]] = {}
        for point in points_of(records, self._levels):
            by_name.setdefault(_legal(point.name), []).append(point)
        if by_name:
            self._send_metrics(by_name)
        events = [record.body() for record in records if record.kind == "event"]
        if events:
            self._send_logs(events)

    def close(self, status: RunStatus) -> None:
        """Do nothing: all that was written has been sent."""

    def _send_metrics(self, by_name: Mapping[str, Iterable[Point]]) -> None:
        request = self._metrics.ExportMetricsServiceRequest()
        scope = self._scope(request.resource_metrics.add()).scope_metrics.add()
        scope.scope.name = "flodl"
        for name, points in by_name.items():
            metric = scope.metrics.add(name=name)
            for point in points:
                sent = metric.gauge.data_points.add(
                    time_unix_nano=point.ts_ms * 1_000_000, as_double=point.value
                )
                cadence = "epoch" if point.is_epoch else "window"
                _add_attributes(sent, {"flodl.path": point.path, "flodl.cadence": cadence})
        self._post("/v1/metrics", request)

    def _send_logs(self, events: Sequence[Mapping[str, Any]]) -> None:
        request = self._logs.ExportLogsServiceRequest()
        scope = self._scope(request.resource_logs.add()).scope_logs.add()
        scope.scope.name = "flodl"
        for event in events:
            sent = scope.log_records.add(
                time_unix_nano=event["ts"] * 1_000_000,
                severity_number=_SEVERITIES[event["sev"]],
                severity_text=event["sev"],
                event_name=f"flodl.{event['class']}",
            )
            sent.body.string_value = event["detail"]
            _add_attributes(sent, {"flodl.path": event["path"], "flodl.class": event["class"]})
        self._post("/v1/logs", request)

    def _scope(self, part: Any) -> Any:
        _add_attributes(part.resource, self._resource)
        return part

    def _post(self, path: str, message: Any) -> None:
        request = urllib.request.Request(  # noqa: S310 (checked to be a web address)
            f"{self._endpoint}{path}", data=message.SerializeToString(), headers=self._headers
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            answer.read()


def _add_attributes(target: Any, attributes: Mapping[str, str]) -> None:
    for key, value in attributes.items():
        target.attributes.add(key=key).value.string_value = value


def _legal(key: str) -> str:
    return f"flodl.{_FOREIGN.sub('_', key)[:_MOST_NAME_CHARS]}"
