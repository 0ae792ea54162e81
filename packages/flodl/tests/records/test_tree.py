import json
import math
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl.core.paths import RecordPathError
from flodl.records import NodeReport, RecordTree
from flodl.records import intake as intake_module
from flodl.records import store as store_module
from flodl.records.errors import ReductionConflict


class FakeClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def tree(clock):
    return RecordTree(clock=clock, wall=clock)


def report(path, loss=1.0, tick=0, work=10, **fields):
    metrics = fields.pop("metrics", {"loss": loss})
    return NodeReport(path=path, metrics=metrics, work=work, tick=tick, **fields)


def bodies(records):
    return [record.body() for record in records]


def test_a_leaf_and_every_node_above_it_get_a_record(tree):
    made = bodies(tree.publish([report("root/a/rank0", 1.0), report("root/b/rank1", 3.0)]))
    assert [body["path"] for body in made] == [
        "root/a/rank0",
        "root/b/rank1",
        "root/a",
        "root/b",
        "root",
    ]
    assert made[-1]["metrics"] == {"loss": 2.0}
    assert made[-1]["work"] == 20
    assert (made[-1]["alive"], made[-1]["children"]) == (2, 2)
    assert made[0]["alive"] is True
    assert "children" not in made[0]
    assert [body["seq"] for body in made] == [1, 2, 3, 4, 5]


def test_a_single_rank_is_the_root_itself(tree):
    (body,) = bodies(tree.publish([report("root", 0.5, label="CPU", device=3)]))
    assert (body["path"], body["label"], body["device"]) == ("root", "CPU", 3)
    assert body["metrics"] == {"loss": 0.5}


def test_only_children_of_the_same_window_are_combined(tree):
    tree.publish([report("root/rank0", 1.0, tick=0), report("root/rank1", 3.0, tick=0)])
    late = bodies(tree.publish([report("root/rank0", 5.0, tick=1)]))
    assert late[-1]["metrics"] == {"loss": 5.0}
    assert late[-1]["work"] == 10
    full = bodies(tree.publish([report("root/rank1", 7.0, tick=1)]))
    assert full[-1]["metrics"] == {"loss": 6.0}
    assert full[-1]["work"] == 20


def test_epoch_records_are_marked_and_carry_no_tick(tree):
    epoch = report("root/rank0", tick=None, epoch=2, epoch_complete=True)
    for body in bodies(tree.publish([epoch])):
        assert body["epoch_complete"] is True
        assert body["epoch"] == 2
        assert "tick" not in body


def test_values_of_the_run_itself_show_at_the_root_alone(tree):
    made = bodies(tree.publish([report("root/rank0")], engine={"anchor": 12, "sync_ms": 3.5}))
    assert "anchor" not in made[0]["metrics"]
    assert made[-1]["metrics"] == {"loss": 1.0, "anchor": 12, "sync_ms": 3.5}
    (alone,) = bodies(tree.publish([], engine={"anchor": 13}))
    assert (alone["path"], alone["metrics"]) == ("root", {"anchor": 13})


def test_a_dead_rank_stops_counting(tree):
    tree.publish([report("root/rank0"), report("root/rank1")])
    made = bodies(tree.set_alive("root/rank1", alive=False))
    assert [(b["path"], b["alive"]) for b in made] == [("root/rank1", False), ("root", 1)]
    assert "metrics" not in made[0]
    assert tree.current("root/rank1")["metrics"] == {"loss": 1.0}


def test_host_resources_go_to_the_host_and_are_never_summed_over_its_ranks(tree):
    host = {"cpu": 50.0, "cpus": 8, "ram_used": 100, "ram_total": 200}
    gpu = {"gpu_util": 90.0, "gpus": 1, "vram_alloc": 5}
    tree.publish(
        [
            report("root/a/rank0", res=gpu, host_res=host),
            report("root/a/rank1", res=gpu),
            report("root/b/rank2", res=gpu, host_res={**host, "cpu": 10.0}),
        ]
    )
    assert tree.current("root/a")["res"] == {**gpu, "gpus": 2, "vram_alloc": 10, **host}
    root = tree.current("root")["res"]
    assert (root["ram_used"], root["cpus"], root["cpu"]) == (200, 16, 30.0)
    assert "cpu" not in tree.current("root/a/rank0")["res"]


def test_mere_resources_leave_the_window_of_their_rank_alone(tree):
    tree.publish([report("root/rank0", 1.0, tick=4)])
    tree.publish([NodeReport(path="root/rank0", res={"gpu_util": 50.0, "gpus": 1})])
    made = bodies(tree.publish([report("root/rank1", 3.0, tick=4)]))
    assert made[-1]["metrics"] == {"loss": 2.0}


def test_resources_appear_only_in_records_with_a_fresh_sample(tree):
    tree.publish([report("root/rank0", res={"gpu_util": 50.0, "gpus": 1})])
    made = bodies(tree.publish([report("root/rank0", tick=1)]))
    assert all("res" not in body for body in made)
    assert tree.current("root")["res"]["gpu_util"] == 50.0


def test_the_current_state_lays_newer_fields_over_older_ones(tree):
    epoch = report(
        "root", tick=None, epoch=0, epoch_complete=True, metrics={"loss": 1.0, "accuracy": 0.5}
    )
    tree.publish([epoch])
    tree.publish([report("root", 0.9, tick=1, epoch=1)])
    state = tree.current("root")
    assert state["metrics"] == {"loss": 0.9, "accuracy": 0.5}
    assert "epoch_complete" not in state
    assert state["epoch"] == 1


def test_a_nan_is_visible_counted_and_told_once(tree):
    made = bodies(tree.publish([report("root/rank0", math.nan), report("root/rank1", 1.0)]))
    leaf = next(b for b in made if b["kind"] == "node")
    assert leaf["metrics"] == {"loss": None}
    assert leaf["nonfinite"] == {"loss": {"nan": 1}}
    assert leaf["sev"] == "warn"
    event = next(b for b in made if b["kind"] == "event")
    assert (event["class"], event["sev"], event["path"]) == ("nonfinite", "critical", "root/rank0")
    assert made[-1]["metrics"] == {"loss": 1.0}
    assert made[-1]["nonfinite"] == {"loss": {"nan": 1}}
    again = bodies(tree.publish([report("root/rank0", math.inf, tick=1)]))
    assert [b["kind"] for b in again] == ["node", "node"]
    assert again[-1]["metrics"] == {"loss": None}
    tree.publish([report("root/rank0", 2.0, tick=2)])
    assert "nonfinite" not in tree.current("root/rank0")


def test_two_producers_of_one_node_are_both_counted_and_warned_of_once(tree, caplog):
    tree.publish([report("root/rank0", 1.0, producer="a"), report("root/rank0", 3.0, producer="b")])
    tree.publish([report("root/rank0", 1.0, tick=1, producer="a")])
    both = bodies(tree.publish([report("root/rank0", 3.0, tick=1, producer="b")]))
    assert both[0]["metrics"] == {"loss": 2.0}
    assert caplog.text.count("several producers claim the node root/rank0") == 1


def test_a_wrong_path_publishes_nothing(tree):
    with pytest.raises(RecordPathError, match=r"root/\.\."):
        tree.publish([report("root/rank0"), report("root/..")])
    assert tree.seq == 0
    assert tree.paths() == ["root"]


def test_excess_metrics_are_refused_with_one_alert(tree):
    many = {f"k{n}": 1.0 for n in range(300)}
    made = bodies(tree.publish([report("root", metrics=many)]))
    assert [b["class"] for b in made if b["kind"] == "event"] == ["overflow"]
    assert len(made[-1]["metrics"]) == intake_module.MAX_KEYS
    assert "'k256'" in next(b for b in made if b["kind"] == "event")["detail"]
    made = bodies(tree.publish([report("root", metrics={"a\nb": 1.0, "k1": 2.0}, tick=1)]))
    assert made[-1]["metrics"] == {"k1": 2.0}


def test_excess_paths_are_refused_with_one_alert(tree, monkeypatch):
    monkeypatch.setattr(store_module, "MAX_PATHS", 4)
    made = bodies(tree.publish([report(f"root/rank{n}") for n in range(10)]))
    assert len(tree.paths()) == 4
    assert [b["class"] for b in made if b["kind"] == "event"] == ["overflow"]
    assert made[-1]["children"] == 3


def test_paths_are_in_natural_order(tree):
    tree.publish([report(f"root/rank{n}") for n in (10, 2, 0)])
    assert tree.paths() == ["root", "root/rank0", "root/rank2", "root/rank10"]
    assert [json.loads(c)["path"] for c in tree.node("root").children] == tree.paths()[1:]
    assert tree.paths("root/rank1") == []


def test_a_node_view_pages_sorts_filters_and_sums_up_all_children(tree):
    tree.publish([report(f"root/rank{n}", float(n % 7), work=n) for n in range(20)])
    view = tree.node("root", limit=3, offset=1, sort="loss", descending=True)
    shown = [json.loads(child)["path"] for child in view.children]
    assert shown == ["root/rank13", "root/rank5", "root/rank12"]
    assert view.total_children == 20
    assert view.summary["loss"] == {
        "min": 0.0,
        "p50": 3.0,
        "max": 6.0,
        "min_path": "root/rank0",
        "max_path": "root/rank6",
    }
    assert tree.node("root", containing="K1").total_children == 11
    assert len(tree.node("root").children) == 20
    first = tree.node("root", sort="work", descending=True, limit=1).children
    assert json.loads(first[0])["path"] == "root/rank19"


def test_an_unseen_path_is_known_to_be_unknown(tree):
    view = tree.node("root/nobody")
    assert (view.known, view.node, view.children) == (False, None, [])
    assert tree.history("root/nobody").records == []


def test_history_holds_the_scope_and_its_direct_children_in_order(tree):
    for tick in range(3):
        tree.publish([report("root/a/rank0", tick=tick), report("root/b/rank1", tick=tick)])
    tree.alert("rank_lost", "root/b/rank1", "gone")
    tree.alert("rank_lost", "root/a/rank0", "gone")
    kept = bodies(tree.history("root/a").records)
    assert {b["path"] for b in kept} == {"root/a", "root/a/rank0"}
    assert [b["seq"] for b in kept] == sorted(b["seq"] for b in kept)
    assert kept[-1]["class"] == "rank_lost"
    wide = bodies(tree.history("root/a", alerts="root").records)
    assert {b["path"] for b in wide if b["kind"] == "event"} == {"root/a/rank0", "root/b/rank1"}
    assert [r.seq for r in tree.history("root/a", n=2).records] == [b["seq"] for b in kept[-2:]]


def test_history_since_goes_on_and_tells_of_a_gap(tree, monkeypatch):
    monkeypatch.setattr("flodl.records.ring._MOST", 40)
    for tick in range(30):
        tree.publish([report("root", tick=tick)])
    part = tree.history("root", since=10, n=5)
    assert [r.seq for r in part.records] == [11, 12, 13, 14, 15]
    assert not part.has_gap
    for tick in range(30, 100):
        tree.publish([report("root", tick=tick)])
    assert tree.history("root", since=10).has_gap
    assert not tree.history("root", since=60).has_gap


def test_declarations_travel_in_the_meta_record(tree):
    tree.describe(id="x", total_epochs=3)
    meta = tree.declare("grad", "max", unit="1").body()
    assert meta["reductions"]["grad"] == "max"
    assert meta["reductions"]["loss"] == "mean"
    assert meta["run"] == {"id": "x", "total_epochs": 3}
    assert meta["units"]["throughput"] == "samples/ms"
    with pytest.raises(ReductionConflict):
        tree.declare("throughput", "mean")


def test_repeated_alerts_ride_with_the_next_record(tree, clock):
    assert len(tree.alert("io", "root", "disk")) == 1
    assert tree.alert("io", "root", "disk") == []
    clock.now += 11
    (event,) = bodies(tree.tick())
    assert (event["count"], event["total"]) == (1, 2)
    assert tree.alerts()[0]["total"] == 2
    assert tree.alerts("root/rank0") == []


def test_a_silent_leaf_is_told_once_and_again_after_it_spoke(tree, clock):
    tree.watch_stalls(on=True)
    for tick in range(5):
        clock.now += 10
        tree.publish([report("root/rank0", tick=tick)])
    clock.now += 49
    assert tree.tick() == []
    clock.now += 2
    (event,) = bodies(tree.tick())
    assert (event["class"], event["path"]) == ("stalled", "root/rank0")
    assert tree.tick() == []
    tree.publish([report("root/rank0", tick=6)])
    clock.now += 300
    assert [b["total"] for b in bodies(tree.tick())] == [2]


def test_an_epoch_mean_does_not_bend_the_curve_of_its_own_windows(tree):
    for tick in range(4):
        tree.publish([report("root", float(tick), tick=tick, epoch=0)])
    epoch = report(
        "root", tick=None, epoch=0, epoch_complete=True, metrics={"loss": 1.5, "accuracy": 0.9}
    )
    tree.publish([epoch])
    body = tree.series("root").body()
    assert body["keys"]["loss"]["last"] == [0.0, 1.0, 2.0, 3.0, None]
    assert body["keys"]["accuracy"]["last"] == [None, None, None, None, 0.9]
    assert tree.series("root/x") is None


def test_resources_have_series_too(tree):
    tree.publish([report("root/rank0", res={"gpu_util": 50.0, "gpus": 1})])
    assert "res.gpu_util" in tree.series("root").keys


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.booleans(), st.integers(0, 100))
def test_reading_history_and_then_subscribing_loses_and_doubles_nothing(writers, wide, start):
    tree, total = RecordTree(), 600
    publish_start = threading.Barrier(writers + 1)

    def write(number):
        publish_start.wait()
        for tick in range(total // writers):
            tree.publish([report(f"root/rank{number}", tick=tick)])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for tick in range(start):
        tree.publish([report("root/rank0", tick=-tick - 1)])
    for thread in threads:
        thread.start()
    publish_start.wait()
    scope = "root" if wide else "root/rank0"
    subscriptions = [tree.subscribe(scope, n=8192) for _ in range(5)]
    for thread in threads:
        thread.join()
    for subscription in subscriptions:
        with subscription:
            seen = [r.seq for r in (*subscription.backlog, *subscription.take(0))]
        assert subscription.dropped == 0
        assert seen == [r.seq for r in tree.history(scope, n=8192).records]


def test_ten_thousand_records_reach_a_subscriber_without_gap_or_double(tree):
    done = threading.Event()

    def write():
        for tick in range(3334):
            tree.publish([report(f"root/rank{n}", tick=tick) for n in range(2)])
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    with tree.subscribe("root", n=8192, limit=20_000) as subscription:
        seen = [r.seq for r in subscription.backlog]
        while not done.is_set():
            seen += [r.seq for r in subscription.take(0.1)]
        thread.join()
        seen += [r.seq for r in subscription.take(0)]
    first = seen[0]
    assert seen == list(range(first, 10_003))


def test_a_subscriber_who_does_not_read_loses_the_oldest_and_knows(tree):
    with tree.subscribe("root", limit=10) as subscription:
        for tick in range(25):
            tree.publish([report("root", tick=tick)])
        assert [r.seq for r in subscription.take(0)] == list(range(16, 26))
        assert subscription.dropped == 15


def test_listeners_hear_everything_in_order_even_what_a_publish_alerts(tree):
    heard = []
    leave = tree.listen(heard.extend)
    tree.publish([report("root/rank0", math.nan), report("root/rank1")])
    leave()
    tree.publish([report("root/rank0", tick=1)])
    assert [r.seq for r in heard] == list(range(1, len(heard) + 1))
    assert len(heard) == 4


def test_a_run_can_be_replayed_from_its_records(tree):
    tree.describe(id="x")
    tree.publish([report("root/rank0", label="CPU"), report("root/rank1")])
    tree.alert("rank_lost", "root/rank1", "gone")
    other = RecordTree()
    records = [tree.meta, *tree.history("root").records]
    for record in sorted(set(records)):
        other.replay(record.body())
    assert other.paths() == tree.paths()
    assert other.current("root") == tree.current("root")
    assert other.alerts() == tree.alerts()
    assert other.run == {"id": "x"}
    assert other.seq == tree.seq
    with pytest.raises(RecordPathError):
        other.replay({"seq": 9, "kind": "node", "path": "root/../x"})
