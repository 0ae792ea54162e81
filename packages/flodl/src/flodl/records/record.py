"""One record of a run: what it is about, and its JSON line, written once."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

from flodl.core.paths import is_within, parent_path

RecordKind = Literal["meta", "node", "event", "log"]
Severity = Literal["info", "warn", "critical"]
RunStatus = Literal["waiting", "running", "done", "failed", "aborted"]

VERSION = 1
MAX_KEY_CHARS = 128
MAX_TEXT_CHARS = 10_000


class Record(NamedTuple):
    """A published record. ``line`` is its one-line JSON form, shared by every consumer."""

    seq: int
    kind: str
    path: str | None
    line: bytes

    def body(self) -> dict[str, Any]:
        """Return the record's fields, parsed afresh."""
        fields: dict[str, Any] = json.loads(self.line)
        return fields


class Sink(Protocol):
    """A place outside the run that its records are sent to, always from one thread."""

    def open(self, run: Mapping[str, Any]) -> None:
        """Begin; ``run`` holds the fields of the run's meta record and its metadata."""

    def write(self, records: Sequence[Record]) -> None:
        """Take some records, in order."""

    def close(self, status: RunStatus) -> None:
        """End; no more records come."""


def delivers(scope: str, kind: str, path: str | None, *, alerts: str | None = None) -> bool:
    """Return whether a viewer of ``scope`` gets a record: the one rule of streams and histories.

    Meta records reach everybody. A node's numbers reach viewers of the node and of its parent;
    everything else reaches viewers of the subtree it happened in.

    Args:
        scope: Path that is looked at.
        kind: Kind of the record.
        path: Path of the record.
        alerts: Wider scope for what is not a number, or ``None`` for ``scope``.
    """
    if kind == "meta":
        return True
    if path is None:
        return False
    if kind == "node":
        return path == scope or parent_path(path) == scope
    return is_within(scope, path) or (alerts is not None and is_within(alerts, path))


def is_metric_key(key: str) -> bool:
    """Return whether ``key`` may name a metric: 1 to 128 printable characters."""
    return 0 < len(key) <= MAX_KEY_CHARS and key.isprintable()


def clean_text(text: str) -> str:
    """Return ``text`` cut to a length that a record can carry, without lone surrogates."""
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[:MAX_TEXT_CHARS]}..."
    return text.encode("utf-8", "replace").decode("utf-8")


def _standard_encoder() -> Callable[[Any], bytes]:
    encode = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
    ).encode
    return lambda value: encode(value).encode("utf-8")


def _chosen_encoder() -> Callable[[Any], bytes]:
    # six times faster than the standard library on these records, where it is installed
    try:
        orjson: ModuleType = importlib.import_module("orjson")
    except ImportError:
        return _standard_encoder()
    dumps: Callable[[Any], bytes] = orjson.dumps
    # a copy, for lines are kept: its result may hold on to a buffer of 8 KB
    return lambda value: bytes(memoryview(dumps(value)))


encode_json = _chosen_encoder()
