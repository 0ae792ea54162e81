"""A timeline as JSON, in rows or columns, as CSV rows, and as a trace for trace viewers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flodl.records.timeline import GPU_COLUMNS, SampleColumns, TimelineData, TimelineEvent


def timeline_body(
    data: TimelineData, start_ms: float | None = None, end_ms: float | None = None
) -> dict[str, Any]:
    """Return the JSON form of the whole timeline, or of a part: one object per sample."""
    own = data.own
    return {
        **_head(data, start_ms, end_ms),
        "samples": [_own_row(own, row) for row in own.span(start_ms, end_ms)],
        "rank_samples": [
            _rank_row(columns, row, rank, host)
            for (rank, host), columns in data.ranks.items()
            for row in columns.span(start_ms, end_ms)
        ],
    }


def timeline_columns(data: TimelineData) -> dict[str, Any]:
    """Return the JSON form in columns, a third of the size, for the page."""
    own = data.own
    return {
        **_head(data, None, None),
        "columns": {
            "t": own.t.tolist(),
            **{name: _nulls(column) for name, column in own.columns.items()},
            "gpus": _gpu_columns(own),
        },
        "rank_columns": [
            {
                "host": host,
                "rank": rank,
                "t": columns.t.tolist(),
                "cpu": _nulls(columns.columns["cpu"]),
                **_first_gpu(columns),
            }
            for (rank, host), columns in data.ranks.items()
        ],
    }


def timeline_rows(data: TimelineData) -> Iterator[list[str | int | float]]:
    """Yield a header and one row per sample; what was not measured is empty."""
    own, devices = data.own, data.devices
    names = ("util", "vram_alloc", "vram_used", "vram_total")
    yield [
        *("elapsed_ms", "cpu_util", "ram_used", "ram_total"),
        *(f"gpu{device}_{name}" for device in devices for name in names),
    ]
    columns = list(own.columns.values())
    columns += [own.gpus[device][name] for device in devices for name in GPU_COLUMNS]
    for row, t in enumerate(own.t):
        yield [t, *(_csv_cell(column[row]) for column in columns)]


def timeline_trace(data: TimelineData) -> dict[str, Any]:
    """Return the timeline as Chrome's trace format, which Perfetto reads as well."""
    own, events = data.own, []
    for row, t in enumerate(own.t):
        counters = {"cpu": own.columns["cpu"][row]}
        counters.update({f"gpu{d}": held["u"][row] for d, held in own.gpus.items()})
        for name, value in counters.items():
            if not math.isnan(value):
                events.append(_counter(t, name, value))
    for event in (*data.events, *data.idle_events()):
        duration = event.fields.get("ms")
        events.append(
            {
                "name": event.kind,
                "ph": "i" if duration is None else "X",
                "ts": _trace_start(event) * 1000,
                "pid": 1,
                "tid": event.fields.get("dev", event.fields.get("rank", 0)),
                "args": dict(event.fields),
                **({"s": "p"} if duration is None else {"dur": duration * 1000}),
            }
        )
    return {"traceEvents": events, "otherData": {"host": data.host}}


def _head(data: TimelineData, start: float | None, end: float | None) -> dict[str, Any]:
    events = [
        event.body()
        for event in sorted((*data.events, *data.idle_events()), key=lambda e: e.t_ms)
        if (start is None or event.t_ms >= start) and (end is None or event.t_ms <= end)
    ]
    return {"v": 1, "host": data.host, "events": events}


def _own_row(columns: SampleColumns, row: int) -> dict[str, Any]:
    held = columns.columns
    return {
        "t": columns.t[row],
        "cpu": _null(held["cpu"][row]),
        "ram": [_null(held["ram_used"][row]), _null(held["ram_total"][row])],
        "gpus": [
            {"d": index, **{name: _null(gpu[name][row]) for name in GPU_COLUMNS}}
            for index, gpu in sorted(columns.gpus.items())
        ],
    }


def _rank_row(columns: SampleColumns, row: int, rank: int, host: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"t": columns.t[row], "rank": rank, "host": host}
    for name, column in columns.columns.items():
        if not math.isnan(column[row]):
            fields[name] = _null(column[row])
    fields["gpus"] = [
        {
            "d": index,
            **{n: _null(gpu[n][row]) for n in ("u", "va", "vt") if not math.isnan(gpu[n][row])},
        }
        for index, gpu in sorted(columns.gpus.items())
    ]
    return fields


def _gpu_columns(columns: SampleColumns) -> list[dict[str, Any]]:
    return [
        {"d": index, **{name: _nulls(gpu[name]) for name in GPU_COLUMNS}}
        for index, gpu in sorted(columns.gpus.items())
    ]


def _first_gpu(columns: SampleColumns) -> dict[str, Any]:
    for _, gpu in sorted(columns.gpus.items()):
        return {name: _nulls(gpu[name]) for name in ("u", "va", "vt")}
    return {name: [None] * len(columns.t) for name in ("u", "va", "vt")}


def _nulls(column: Sequence[float]) -> list[float | int | None]:
    return [_null(value) for value in column]


def _null(value: float) -> float | int | None:
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else value


def _csv_cell(value: float) -> str | int | float:
    shown = _null(value)
    return "" if shown is None else shown


def _counter(t: int, name: str, value: float) -> dict[str, Any]:
    return {"name": name, "ph": "C", "ts": t * 1000, "pid": 1, "args": {"%": value}}


def _trace_start(event: TimelineEvent) -> float:
    # an end event tells how long what it ends took
    is_end = event.kind.endswith("_end") or event.kind in {"eval", "checkpoint"}
    return float(event.t_ms - event.fields["ms"] if is_end and "ms" in event.fields else event.t_ms)
