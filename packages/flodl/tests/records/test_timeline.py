import json
import math

import pytest

from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.records import timeline as timeline_module
from flodl.records.timeline import TimelineData, event_of
from flodl.records.timeline_export import (
    timeline_body,
    timeline_columns,
    timeline_rows,
    timeline_trace,
)


def sample(*utils, cpu=10.0, ram=(1, 2)):
    gpus = tuple(
        GpuSnapshot(
            device_index=index, name="x", util_percent=util, vram_total_bytes=100 * (index + 1)
        )
        for index, util in enumerate(utils)
    )
    return ResourceSample(cpu_percent=cpu, ram_used_bytes=ram[0], ram_total_bytes=ram[1], gpus=gpus)


def filled(utils, step=100):
    data = TimelineData("h")
    for number, util in enumerate(utils):
        data.add_sample(number * step, sample(util))
    return data


LOW_IN_THE_MIDDLE = [90.0] * 5 + [1.0] * 10 + [90.0] * 5


def test_a_gap_reaches_from_its_first_idle_sample_to_the_first_busy_one():
    assert filled(LOW_IN_THE_MIDDLE).idle_gaps(0) == [(500, 1500)]


def test_short_gaps_do_not_count_and_an_open_one_does():
    data = filled([90.0, 1.0, 1.0, 90.0] + [1.0] * 8)
    assert data.idle_gaps(0) == [(400, 1100)]
    assert data.idle_gaps(0, min_ms=100) == [(100, 300), (400, 1100)]
    assert data.idle_gaps(0, threshold_pct=100) == [(0, 1100)]
    assert data.idle_gaps(7) == []


def test_a_sample_without_utilization_is_no_idle_one():
    assert filled([None] * 20).idle_gaps(0) == []
    assert filled([1.0] * 6 + [None] + [1.0] * 3).idle_gaps(0) == [(0, 600)]


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([(1000, "custom")], "startup"),
        ([(0, "custom"), (900, "epoch_end"), (950, "sync_start")], "epoch boundary"),
        ([(0, "custom"), (100, "cpu_avg_start"), (900, "sync_start")], "CPU averaging"),
        ([(0, "custom"), (1900, "sync_end")], "sync"),
        ([(0, "custom"), (1000, "checkpoint")], "checkpoint"),
        ([(0, "custom"), (2100, "sync_end")], "unexplained"),
        ([], "unexplained"),
    ],
)
def test_an_idle_gap_is_told_with_its_likely_cause(events, cause):
    data = filled(LOW_IN_THE_MIDDLE)
    for t, kind in events:
        data.add_event(event_of(t, kind, {"ms": 1}))
    (gap,) = data.idle_events()
    assert gap.body() == {"t": 500, "k": "idle", "dev": 0, "ms": 1000, "cause": cause}


def test_numbers_that_are_not_finite_are_null_wherever_they_stand_in_an_event():
    nan, inf = math.nan, math.inf
    event = event_of(1, "div", {"d": nan, "deltas": [nan, 1.0], "values": {"a": inf, "b": 2.0}})
    assert event.body() == {
        "t": 1, "k": "div", "deltas": [None, 1.0], "values": {"a": None, "b": 2.0},
    }  # fmt: skip
    json.dumps(event.body(), allow_nan=False)


def test_the_summary_counts_and_averages():
    data = filled(LOW_IN_THE_MIDDLE)
    for ms in (10, 20):
        data.add_event(event_of(100, "sync_end", {"ms": ms}))
    data.add_event(event_of(2500, "anchor", {"from": 1, "to": 2}))
    summary = data.summary()
    assert (summary.total_ms, summary.sample_count, summary.event_count) == (2500, 20, 3)
    assert summary.gpu_idle_pct == (50.0,)
    assert (summary.sync_count, summary.avg_sync_ms) == (2, 15.0)
    assert (summary.cpu_avg_count, summary.avg_cpu_avg_ms) == (0, None)
    assert summary.anchor_change_count == 1


def test_an_empty_timeline_has_a_summary_too():
    summary = TimelineData("h").summary()
    assert (summary.total_ms, summary.gpu_idle_pct, summary.avg_sync_ms) == (0, (), None)


def test_what_was_not_measured_is_null_and_never_zero():
    data = TimelineData("h")
    data.add_sample(0, sample(50.0, cpu=None, ram=(None, None)))
    data.add_sample(100, sample(60.0, 0.0))
    body = timeline_body(data)
    assert body["samples"][0] == {
        "t": 0,
        "cpu": None,
        "ram": [None, None],
        "gpus": [
            {"d": 0, "u": 50, "va": None, "vu": None, "vt": 100},
            {"d": 1, "u": None, "va": None, "vu": None, "vt": None},
        ],
    }
    assert body["samples"][1]["gpus"][1]["u"] == 0
    header, first, second = timeline_rows(data)
    assert header[:5] == ["elapsed_ms", "cpu_util", "ram_used", "ram_total", "gpu0_util"]
    assert header[-1] == "gpu1_vram_total"
    assert first == [0, "", "", "", 50, "", "", 100, "", "", "", ""]
    assert second[8] == 0


def test_rows_and_columns_say_the_same():
    data = filled([1.5, 2.0])
    data.add_rank_sample(50, 3, "other", sample(9.0, cpu=None))
    rows, columns = timeline_body(data), timeline_columns(data)
    assert columns["columns"]["t"] == [row["t"] for row in rows["samples"]]
    assert columns["columns"]["gpus"][0]["u"] == [row["gpus"][0]["u"] for row in rows["samples"]]
    assert columns["rank_columns"][0]["u"] == [9]
    assert rows["rank_samples"] == [
        {
            "t": 50,
            "rank": 3,
            "host": "other",
            "ram_used": 1,
            "ram_total": 2,
            "gpus": [{"d": 0, "u": 9, "vt": 100}],
        }
    ]


def test_a_part_holds_its_samples_and_events():
    data = filled([50.0] * 10)
    data.add_event(event_of(450, "custom", {"label": "x"}))
    part = timeline_body(data, 300, 500)
    assert [row["t"] for row in part["samples"]] == [300, 400, 500]
    assert len(part["events"]) == 1
    assert timeline_body(data, 600, None)["events"] == []


def test_events_keep_only_what_has_a_json_form():
    event = event_of(1, "epoch_end", {"epoch": 0, "loss": math.nan, "lr": None, "x": "a" * 20_000})
    assert set(event.fields) == {"epoch", "x"}
    assert len(event.fields["x"]) < 11_000


def test_the_oldest_tenth_goes_when_there_is_too_much(monkeypatch):
    monkeypatch.setattr(timeline_module, "MAX_SAMPLES", 100)
    monkeypatch.setattr(timeline_module, "MAX_EVENTS", 50)
    data = filled([50.0] * 101)
    assert len(data) == 91
    assert timeline_body(data)["samples"][0]["t"] == 1000
    for number in range(51):
        data.add_event(event_of(number, "custom", {}))
    assert len(data.events) == 46
    assert data.dropped == 15


def test_a_trace_has_counters_and_spans():
    data = filled([90.0, 20.0])
    data.add_event(event_of(100, "sync_end", {"ms": 30}))
    data.add_event(event_of(100, "custom", {"label": "x"}))
    events = timeline_trace(data)["traceEvents"]
    assert {"name": "gpu0", "ph": "C", "ts": 100_000, "pid": 1, "args": {"%": 20.0}} in events
    span = next(event for event in events if event["name"] == "sync_end")
    assert (span["ph"], span["ts"], span["dur"]) == ("X", 70_000, 30_000)
    assert next(event for event in events if event["name"] == "custom")["ph"] == "i"
