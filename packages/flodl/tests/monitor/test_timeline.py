import csv
import gc
import io
import json

import pytest

from flodl.core.errors import ConfigError
from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.device.sampler import ResourceSampler
from flodl.monitor.events import EventKind
from flodl.monitor.spill import KEPT_RUNS, TimelineSpill
from flodl.monitor.timeline import Timeline


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class FakeProbe:
    util = 50.0

    def read(self):
        return [GpuSnapshot(device_index=0, name="x", util_percent=self.util)]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def timeline(clock):
    sampler = ResourceSampler([0], probe=FakeProbe(), allocated=dict)
    return Timeline(spill=False, sampler=sampler, clock=clock)


def test_samples_and_events_stand_at_their_time(timeline, clock):
    timeline.poll()
    clock.now = 0.25
    timeline.event(EventKind.epoch_end(epoch=3, loss=0.5))
    clock.now = 0.3
    timeline.poll()
    body = timeline.body()
    assert [sample["t"] for sample in body["samples"]] == [0, 300]
    assert body["events"] == [{"t": 250, "k": "epoch_end", "epoch": 3, "loss": 0.5}]
    assert (len(timeline), timeline.elapsed_ms) == (2, 300)


@pytest.mark.parametrize(
    ("event", "kind", "fields"),
    [
        (EventKind.anchor_changed(old=1, new=2), "anchor", {"from": 1, "to": 2}),
        (EventKind.throttle(rank=3), "throttle", {"rank": 3}),
        (EventKind.cpu_avg_end(ms=1.5), "cpu_avg_end", {"ms": 1.5}),
        (EventKind.graph_capture(ok=False, reason="x"), "capture", {"ok": False, "reason": "x"}),
        (EventKind.custom("here"), "custom", {"label": "here"}),
        (
            EventKind.divergence(d=0.1, k_used=2, k_max=4, step=9, deltas=(1, 2), lambda_=0.3),
            "div",
            {"d": 0.1, "k_used": 2, "k_max": 4, "step": 9, "deltas": [1, 2], "lambda": 0.3},
        ),
    ],
)
def test_events_have_the_fields_of_their_kind(event, kind, fields):
    assert (event.kind, dict(event.fields)) == (kind, fields)


def test_subscribers_get_everything_once_and_an_end(clock, tmp_path):
    timeline = Timeline(poll_ms=1, broadcast_ms=1, spill=tmp_path, label="a b")
    with timeline:
        timeline.start()
        parts = timeline.subscribe()
        for number in range(5):
            timeline.event(EventKind.custom(str(number)))
        timeline.rank_sample(3, "other", ResourceSample(cpu_percent=1.0))
        first = next(parts)
        timeline.stop()
        received = [first, *parts]
    events = [event.fields["label"] for part in received for event in part.events]
    assert events == list("01234")
    assert sum(len(part.rank_samples) for part in received) == 1
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("a-b-")
    kept = [json.loads(line) for line in (folder / "timeline.jsonl").read_text().splitlines()]
    assert [e["label"] for part in kept for e in part["events"] if e["k"] == "custom"] == events
    assert json.loads((folder / "meta.json").read_text())["pid"]


def test_a_collector_takes_no_samples(tmp_path):
    with Timeline(poll_ms=0, broadcast_ms=1, spill=False) as timeline:
        parts = timeline.subscribe()
        timeline.event(EventKind.sync_start())
        assert next(parts).events
    assert len(timeline) == 0


def test_files_say_the_same_as_the_timeline(timeline, clock, tmp_path):
    for number in range(3):
        clock.now = number / 10
        timeline.poll()
    timeline.event(EventKind.sync_end(ms=5))
    assert json.loads(timeline.save_json(tmp_path / "t.json").read_bytes()) == timeline.body()
    table = list(csv.DictReader(io.StringIO(timeline.save_csv(tmp_path / "t.csv").read_text())))
    assert [row["gpu0_util"] for row in table] == ["50", "50", "50"]
    trace = json.loads(timeline.save_trace(tmp_path / "t.trace.json").read_bytes())
    assert trace["traceEvents"]
    page = timeline.save_html(tmp_path / "t.html").read_text()
    assert '"columns":{"t":[0,100,200]' in page
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_draining_starts_afresh(timeline):
    timeline.poll()
    assert len(timeline.drain()) == 1
    assert len(timeline) == 0
    assert timeline.summary().sample_count == 0


def test_idle_gaps_are_those_of_its_samples(timeline, clock):
    timeline._sampler._probe.util = 0.0
    for number in range(10):
        clock.now = number / 10
        timeline.poll()
    assert timeline.idle_gaps(0) == [(0, 900)]
    assert timeline.idle_gaps(0, min_ms=2000) == []


def test_dropping_a_running_timeline_ends_its_thread():
    timeline = Timeline(poll_ms=1, spill=False)
    timeline.start()
    thread = timeline._repeater._thread
    del timeline
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_disk_that_refuses_is_told_and_ends_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with Timeline(poll_ms=0, broadcast_ms=1, spill=tmp_path / "file") as timeline:
        timeline.event(EventKind.sync_start())
    assert caplog.text.count("not kept on the disk") == 1


def test_only_the_newest_runs_are_kept(tmp_path):
    for _ in range(KEPT_RUNS + 3):
        TimelineSpill.opened("run", tmp_path).close()
    assert len(list(tmp_path.iterdir())) == KEPT_RUNS


@pytest.mark.parametrize("given", [{"poll_ms": -1}, {"broadcast_ms": 0}])
def test_intervals_that_are_none_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        Timeline(**given)
