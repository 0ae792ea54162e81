import csv
import gc
import io
import json
import pickle

import pytest

from flodl.core.errors import ConfigError
from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.device.sampler import ResourceSampler
from flodl.metrics import EpochMetrics
from flodl.monitor import Monitor
from flodl.monitor.spill import KEPT_RUNS, TimelineSpill
from flodl.monitor.timeline import Timeline
from flodl.records.events import EventKind


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


def test_a_run_marks_its_epochs_on_its_timeline_and_ends_it(tmp_path):
    timeline = Timeline(poll_ms=0, spill=False)
    with Monitor(1, progress="none") as monitor:
        monitor.timeline(timeline)
        with monitor.epoch(0, steps=1) as epoch:
            epoch.step(loss=0.5)
        assert monitor.board.timelines == {timeline.host: timeline}
    kinds = [event["k"] for event in timeline.body()["events"]]
    assert kinds == ["epoch_start", "epoch_end"]
    assert timeline.body()["events"][1]["loss"] == 0.5
    assert timeline._repeater is None


def test_an_evaluation_is_marked_with_what_it_took():
    timeline = Timeline(poll_ms=0, spill=False)
    metrics = EpochMetrics(
        epoch=0,
        avg_loss=0.5,
        epoch_ms=100.0,
        eval_ms=12.5,
        batches_processed=1,
        samples_processed=8,
        lr=0.1,
    )
    with Monitor(1, progress="none") as monitor:
        monitor.timeline(timeline)
        monitor.log(0, 0.1, metrics)
    events = timeline.body()["events"]
    assert [(e["k"], e.get("ms"), e.get("lr")) for e in events] == [
        ("eval", 12.5, None),
        ("epoch_end", None, 0.1),
    ]


def test_a_second_timeline_is_refused():
    first, second = Timeline(poll_ms=0, spill=False), Timeline(poll_ms=0, spill=False)
    with Monitor(1, progress="none") as monitor:
        monitor.timeline(first)
        monitor.timeline(first)
        with pytest.raises(ConfigError, match="one timeline"):
            monitor.timeline(second)
    assert second._repeater is None


def test_an_event_may_have_begun_a_while_ago(timeline, clock):
    clock.now = 2.0
    timeline.event(EventKind.sync_start(), ago_ms=250)
    timeline.event(EventKind.sync_start(), ago_ms=9000)
    assert [event["t"] for event in timeline.body()["events"]] == [0, 1750]


def rank_sample(util, cpu=None):
    card = GpuSnapshot(device_index=4, name="", util_percent=util, vram_total_bytes=10)
    return ResourceSample(cpu_percent=cpu, gpus=(card,))


def test_what_a_process_ships_another_holds_after_it(timeline, clock, tmp_path):
    for second, util in enumerate((90.0, 1.0, 2.0, 80.0)):
        clock.now = float(second)
        timeline.poll()
        timeline.rank_sample(1, "beta", rank_sample(util, cpu=12.5))
        timeline.event(EventKind.sync_end(ms=5.0))
    file = timeline.ship(tmp_path / "deep" / "timeline.json")
    other = Timeline(poll_ms=0, spill=False)
    other.take_over(file)
    assert other.body() == timeline.body()
    assert other.rank_idle_gaps(1) == timeline.rank_idle_gaps(1) == [(1000, 3000)]
    assert other.rank_idle_gaps(0) == []


def test_marks_of_this_process_stay_where_they_were(timeline, clock, tmp_path):
    timeline.event(EventKind.epoch_start(epoch=0))
    file = timeline.ship(tmp_path / "timeline.json")
    shipped = json.loads(file.read_bytes())
    other = Timeline(poll_ms=0, spill=False)
    other.event(EventKind.custom("mine"))
    other._started_at = shipped["started"] - 1.5  # this process began earlier
    other.take_over(file)
    events = {event["k"]: event["t"] for event in other.body()["events"]}
    assert events["epoch_start"] == 1500
    assert events["custom"] < 1500


def test_nothing_shipped_is_an_error_and_changes_nothing(timeline, tmp_path):
    timeline.event(EventKind.custom("mine"))
    with pytest.raises(OSError, match="timeline.json"):
        timeline.take_over(tmp_path / "timeline.json")
    assert len(timeline.body()["events"]) == 1


def test_idle_gaps_of_ranks_elsewhere_are_told_and_those_sampled_here_once(timeline, clock):
    for second in range(3):
        clock.now = float(second)
        FakeProbe.util = 0.0
        timeline.poll()
        timeline.rank_sample(0, timeline.host, rank_sample_of(0))
        timeline.rank_sample(1, "beta", rank_sample(0.0))
    FakeProbe.util = 50.0
    idle = [event for event in timeline.body()["events"] if event["k"] == "idle"]
    assert [(event["dev"], event.get("rank")) for event in idle] == [(0, None), (4, 1)]


def rank_sample_of(device):
    card = GpuSnapshot(device_index=device, name="", util_percent=0.0)
    return ResourceSample(gpus=(card,))


def test_a_host_has_the_samples_of_its_ranks_and_the_events_of_the_run(timeline):
    timeline.rank_sample(0, "alpha", rank_sample(10.0))
    timeline.rank_sample(1, "beta", rank_sample(20.0))
    timeline.event(EventKind.throttle(rank=1))
    body = timeline.of_host("beta").body()
    assert body["host"] == "beta"
    assert [(row["rank"], row["gpus"][0]["u"]) for row in body["rank_samples"]] == [(1, 20)]
    assert [event["k"] for event in body["events"]] == ["throttle"]


def test_a_process_that_a_run_started_samples_only_when_told_what(timeline, monkeypatch):
    monkeypatch.setenv("FLODL_INTERNAL_ROLE", "rank")
    timeline.start()
    assert timeline._repeater is None
    timeline.start(devices=[3])
    assert timeline._repeater is not None
    assert timeline._sampler._devices == {3}
    timeline.stop()


def test_a_timeline_is_another_one_after_pickle(tmp_path):
    made = pickle.loads(pickle.dumps(Timeline(50, 500, label="mine", spill=tmp_path)))
    assert (made._poll_ms, made._broadcast_ms, made._label) == (50, 500, "mine")
    assert (made._spill_place, len(made)) == (tmp_path, 0)
