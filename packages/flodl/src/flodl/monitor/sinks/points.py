"""Records as the points that targets take: name, value, step, time."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flodl.core.paths import ROOT, check_record_path
from flodl.monitor.errors import MissingExtraError
from flodl.records.record import Record


class Point(NamedTuple):
    """One value of one metric; ``value`` may be NaN."""

    seq: int
    """Of the record that it is from."""
    path: str
    name: str
    value: float
    step: int
    ts_ms: int
    is_epoch: bool


class AlertNote(NamedTuple):
    """One alert."""

    severity: str
    name: str
    path: str
    detail: str


def checked_levels(levels: Sequence[str]) -> frozenset[str]:
    """Return the record paths to send.

    Raises:
        RecordPathError: One of them is no record path.
    """
    return frozenset(check_record_path(level) for level in levels)


def points_of(records: Sequence[Record], levels: frozenset[str]) -> Iterator[Point]:
    """Yield the metrics and resources of the chosen levels.

    The step of an epoch's values is the epoch, 1-based; that of a window's is the optimizer's,
    or the window's number where no step was told.
    """
    for record in records:
        if record.kind != "node" or record.path not in levels:
            continue
        body = record.body()
        is_epoch = bool(body.get("epoch_complete"))
        step = body.get("epoch", 0) + 1 if is_epoch else body.get("step", body.get("tick", 0))
        values = {**body.get("metrics", {})}
        values.update((f"res.{key}", value) for key, value in body.get("res", {}).items())
        for key, value in values.items():
            number = math.nan if value is None else float(value)
            yield Point(
                record.seq, str(record.path), key, number, int(step), int(body["ts"]), is_epoch
            )


def alerts_of(records: Sequence[Record]) -> Iterator[AlertNote]:
    """Yield the alerts of the whole run."""
    for record in records:
        if record.kind == "event":
            body = record.body()
            yield AlertNote(body["sev"], body["class"], body["path"], body["detail"])


def point_name(point: Point) -> str:
    """Return a name that tells levels and cadences apart: ``epoch/loss``, ``host-a/rank1/loss``."""
    level = "" if point.path == ROOT else f"{point.path.removeprefix(f'{ROOT}/')}/"
    return f"{level}{'epoch/' if point.is_epoch else ''}{point.name}"


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level of dotted names; lists become JSON."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flat_settings(value, f"{name}."))
        elif value is None or isinstance(value, (str, int, float, bool)):
            flat[name] = value
        else:
            flat[name] = json.dumps(value)
    return flat


def library(name: str, what: str, *, extra: str) -> Any:
    """Return a target's library.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(what, extra=extra) from error
