import json
import logging

import pytest

from flodl.core.errors import ConfigError
from flodl.core.paths import RecordTier
from flodl.records.board import RunBoard
from flodl.records.feed import RankFeed
from flodl.records.telemetry import RankTelemetry

HOSTS = ["alpha", "beta", "beta"]


class FakeClock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def make(clock):
    def feed(hosts=HOSTS, *, reports=0, **tier):
        board = RunBoard(clock=clock)
        board.tree.describe(total_epochs=4)
        made = RankFeed(board, RecordTier(hosts, **tier), reports_per_epoch=reports, clock=clock)
        for member, host in enumerate(hosts):
            made.join(member, host, label="GTX", device=member)
        return made

    return feed


def told(rank, loss=1.0, work=10, **fields):
    return RankTelemetry(rank=rank, work=work, sums={"loss": (loss, 1)}, **fields)


def current(feed, path):
    return feed.board.tree.current(path)


def rows(feed, path):
    return [record.body() for record in feed.board.tree.recent_rows(path, 100)]


def test_ranks_are_below_their_hosts_from_the_start(make):
    feed = make()
    assert feed.board.tree.paths() == [
        "root",
        "root/alpha",
        "root/alpha/rank0",
        "root/beta",
        "root/beta/rank1",
        "root/beta/rank2",
    ]
    assert current(feed, "root/beta/rank2")["label"] == "GTX"
    assert feed.board.tree.alerts() == []


def test_without_reports_a_window_publishes_nothing_and_its_epoch_all(make, clock):
    feed = make()
    feed.begin_epoch(0, work=60)
    for _ in range(2):
        clock.now += 1
        assert feed.window([told(0, 1.0, 10), told(1, 2.0, 10), told(2, 4.0, 10)]) == []
    feed.end_epoch(0, duration_secs=2.0, step=6, evals={"accuracy": 0.75})
    root = rows(feed, "root")[-1]
    assert root["epoch_complete"]
    assert root["metrics"]["loss"] == pytest.approx(7 / 3)
    assert root["metrics"]["accuracy"] == 0.75
    assert root["metrics"]["throughput"] == pytest.approx(60 / 2000)
    assert root["metrics"]["batch_share"] == pytest.approx(1.0)
    assert (root["work"], root["step"], root["epoch"]) == (60, 6, 0)
    assert rows(feed, "root/beta")[-1]["metrics"]["loss"] == pytest.approx(3.0)
    assert "accuracy" not in rows(feed, "root/beta")[-1]["metrics"]


def test_reports_come_at_the_quarters_with_the_sums_since_the_last(make, clock):
    feed = make(["a", "a"], reports=4)
    feed.begin_epoch(0, work=80)
    published = []
    for window in range(8):
        clock.now += 0.5
        made = feed.window([told(0, float(window), 5), told(1, float(window), 5)], step=window)
        published.append(bool(made))
    assert published == [False, True] * 4
    windows = [row for row in rows(feed, "root") if "tick" in row]
    assert [row["tick"] for row in windows] == [1, 3, 5, 7]
    assert [row["metrics"]["loss"] for row in windows] == [0.5, 2.5, 4.5, 6.5]
    assert windows[0]["metrics"]["throughput"] == pytest.approx(20 / 1000)
    feed.end_epoch(0, duration_secs=4.0)
    assert rows(feed, "root")[-1]["metrics"]["loss"] == pytest.approx(3.5)


def test_time_between_epochs_belongs_to_no_report(make, clock):
    feed = make(["a"], reports=1, elastic=True)
    feed.begin_epoch(0, work=10)
    clock.now += 1
    feed.window([told(0)])
    feed.end_epoch(0, duration_secs=1.0)
    clock.now += 50
    feed.begin_epoch(1, work=10)
    clock.now += 1
    feed.window([told(0)])
    assert current(feed, "root/rank0")["metrics"]["throughput"] == pytest.approx(10 / 1000)


def test_the_mean_is_weighted_by_the_work_behind_each_key(make):
    feed = make()
    feed.begin_epoch(0, work=None)
    extra = RankTelemetry(rank=1, work=90, sums={"loss": (1.0, 1), "accuracy": (0.5, 1)})
    feed.window([told(0, 1.0, 10), extra, told(2, 3.0, 100)])
    feed.window([told(1, 1.0, 10)])
    feed.end_epoch(0, duration_secs=1.0)
    beta = rows(feed, "root/beta")[-1]
    assert beta["metrics"]["accuracy"] == 0.5
    assert beta["kwork"]["accuracy"] == 90
    assert current(feed, "root")["metrics"]["loss"] == pytest.approx((10 + 100 + 300) / 210)


def test_the_values_of_the_run_itself_stand_at_the_root_alone(make, clock):
    feed = make(reports=1)
    feed.begin_epoch(0, work=30)
    clock.now += 1
    feed.window([told(r) for r in range(3)], engine={"anchor": 12, "sync_ms": 4.5})
    assert current(feed, "root")["metrics"]["anchor"] == 12
    assert "anchor" not in current(feed, "root/beta")["metrics"]


def test_a_single_rank_is_the_root_and_carries_the_values_of_the_run(make, clock):
    feed = make(["a"], reports=1)
    feed.begin_epoch(0, work=10)
    clock.now += 1
    made = feed.window([told(0)], engine={"anchor": 3}, step=7)
    assert [r.path for r in made] == ["root"]
    assert made[0].body()["metrics"]["anchor"] == 3
    feed.end_epoch(0, duration_secs=1.0, evals={"accuracy": 1.0})
    assert rows(feed, "root")[-1]["metrics"]["accuracy"] == 1.0
    assert rows(feed, "root")[-1]["epoch_complete"]


def test_work_of_the_next_epoch_that_comes_early_counts_for_it(make, clock):
    feed = make(["a", "a"])
    feed.begin_epoch(0, work=20)
    feed.window([told(0, 1.0, epoch=0), told(1, 9.0, epoch=1)])
    feed.window([told(1, 3.0, epoch=0)])
    feed.end_epoch(0, duration_secs=1.0)
    assert current(feed, "root")["metrics"]["loss"] == 2.0
    feed.begin_epoch(1, work=20)
    feed.end_epoch(1, duration_secs=1.0)
    assert current(feed, "root")["metrics"]["loss"] == 9.0
    assert rows(feed, "root")[-1]["work"] == 10


def test_a_lost_rank_is_told_of_once_and_no_longer_listened_to(make):
    feed = make()
    feed.begin_epoch(0, work=60)
    feed.window([told(0, 1.0), told(1, 1.0), told(2, 7.0)])
    made = [record.body() for record in feed.lose(2, "no heartbeat for 30 s")]
    assert (made[0]["class"], made[0]["sev"], made[0]["path"]) == (
        "rank_lost",
        "critical",
        "root/beta/rank2",
    )
    assert (current(feed, "root/beta")["alive"], current(feed, "root")["alive"]) == (1, 2)
    assert not current(feed, "root/beta/rank2")["alive"]
    feed.window([told(2, 100.0)])
    feed.resources(RankTelemetry(rank=2, res={"gpu_util": 5.0}))
    feed.tick()
    assert feed.malformed == 2
    feed.end_epoch(0, duration_secs=1.0)
    # its work before the loss was done
    assert current(feed, "root")["metrics"]["loss"] == 3.0
    assert not current(feed, "root/beta/rank2")["alive"]


def test_who_joins_a_running_epoch_is_announced_at_its_path(make):
    feed = make()
    feed.begin_epoch(0, work=None)
    assert feed.join(3, "gamma ray") == "root/gamma-ray/rank3"
    (alert,) = feed.board.tree.alerts()
    assert (alert["class"], alert["sev"]) == ("rank_joined", "info")
    assert alert["path"] == "root/gamma-ray/rank3"
    feed.window([told(3)])
    assert feed.malformed == 0


def test_a_rank_that_comes_back_lives_again(make):
    feed = make()
    feed.begin_epoch(0, work=None)
    feed.lose(2, "gone")
    feed.join(2, "beta")
    assert current(feed, "root/beta")["alive"] == 2
    feed.window([told(2)])
    assert feed.malformed == 0


def test_telemetry_of_the_wrong_form_is_dropped_counted_and_warned_of_once(make, caplog):
    feed = make()
    feed.begin_epoch(0, work=None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            feed.window([told(0, 5.0), {"rank": 1, "sums": "x"}, {"rank": 77}])
    assert feed.malformed == 6
    assert feed.board.losses()["telemetry"] == 6
    assert len(caplog.records) == 2
    feed.end_epoch(0, duration_secs=1.0)
    assert current(feed, "root")["metrics"]["loss"] == 5.0


def test_metrics_without_room_raise_an_alert(make):
    feed = make()
    feed.begin_epoch(0, work=None)
    feed.window([told(0, left_out=3)])
    assert [a["class"] for a in feed.board.tree.alerts()] == ["overflow"]


def test_resources_are_means_and_peaks_since_they_were_shown(make, clock):
    feed = make(reports=2)
    feed.begin_epoch(0, work=20)
    for mean, high in ((80.0, 90.0), (60.0, 100.0)):
        res = {"gpu_util": (10.0, mean, high), "vram_alloc": (1, 2, 3), "vram_total": 8}
        feed.resources(RankTelemetry(rank=1, res=res, host_res={"cpu": 50.0, "cpus": 4}))
    clock.now += 1
    feed.window([told(1)])
    shown = current(feed, "root/beta/rank1")["res"]
    assert shown == {
        "gpu_util": 70.0,
        "gpu_util_max": 100.0,
        "vram_alloc": 2,
        "vram_alloc_max": 3,
        "vram_total": 8,
        "gpus": 1,
    }
    assert current(feed, "root/beta")["res"]["cpu"] == 50.0
    clock.now += 1
    feed.window([told(1)])
    assert "res" not in rows(feed, "root/beta/rank1")[-1]


def test_resources_that_come_by_themselves_are_shown_once_a_second(make, clock):
    feed = make()
    feed.begin_epoch(0, work=None)
    feed.resources(RankTelemetry(rank=0, res={"gpu_util": 40.0}))
    before = feed.board.tree.seq
    clock.now += 0.4
    feed.tick()
    assert feed.board.tree.seq == before
    clock.now += 0.7
    feed.tick()
    assert current(feed, "root/alpha/rank0")["res"]["gpu_util"] == 40.0
    assert current(feed, "root")["res"]["gpu_util"] == 40.0
    assert "metrics" not in rows(feed, "root/alpha/rank0")[-1]


def test_the_epoch_feed_has_the_time_left_and_each_device(make, clock):
    feed = make()
    for epoch in range(2):
        feed.begin_epoch(epoch, work=30)
        clock.now += 5
        feed.window([told(r, work=10 * (r + 1)) for r in range(3)])
        feed.end_epoch(epoch, duration_secs=5.0)
    lines = [json.loads(line) for line in feed.board.epochs()]
    assert [(line["epoch"], line["total"], line["eta"]) for line in lines] == [
        (1, 4, 15.0),
        (2, 4, 10.0),
    ]
    assert [gpu["dev"] for gpu in lines[1]["gpus"]] == [0, 1, 2]
    assert [gpu["shard"] for gpu in lines[1]["gpus"]] == [10, 20, 30]
    assert sum(gpu["chunk"] for gpu in lines[1]["gpus"]) == pytest.approx(1.0)
    assert feed.board.progress == {"epoch": 2, "total": 4, "eta": 10.0}
    assert feed.board.status == "running"


def test_the_last_epoch_has_no_time_left(make):
    feed = make()
    feed.board.tree.describe(total_epochs=1)
    feed.begin_epoch(0, work=None)
    feed.window([told(0)])
    feed.end_epoch(0, duration_secs=1.0)
    assert "eta" not in json.loads(feed.board.epochs()[0])


def test_the_first_record_after_a_resume_says_so(make, clock):
    feed = make(reports=2)
    feed.begin_epoch(2, work=20, restart=True)
    clock.now += 1
    feed.window([told(0)])
    clock.now += 1
    feed.window([told(0)])
    assert [row.get("restart", False) for row in rows(feed, "root") if "tick" in row] == [
        True,
        False,
    ]


def test_a_new_controller_goes_on_with_the_members_of_the_old(make, clock):
    feed = make(reports=1)
    feed.begin_epoch(0, work=30)
    clock.now += 1
    feed.window([told(r) for r in range(3)])
    feed.lose(1, "gone")
    state = json.loads(json.dumps(feed.state()))
    after = RankFeed(RunBoard(clock=clock), RecordTier(HOSTS), reports_per_epoch=1, clock=clock)
    after.load(state)
    assert after.board.tree.paths() == feed.board.tree.paths()
    assert after.board.tree.current("root")["alive"] == 2
    assert after.board.tree.alerts() == []
    after.begin_epoch(1, work=10)
    clock.now += 1
    after.window([told(0)])
    assert rows(after, "root")[-1]["tick"] == 1
    assert after.state()["windows"] == 2


def test_a_member_that_has_not_joined_is_refused_by_name(make):
    with pytest.raises(ConfigError, match="member 9 has not joined; joined so far: 0, 1, 2"):
        make().lose(9, "gone")


def test_a_negative_number_of_reports_is_refused():
    with pytest.raises(ConfigError, match="reports_per_epoch=-1"):
        RankFeed(RunBoard(), RecordTier(["a"]), reports_per_epoch=-1)


def test_values_that_are_not_finite_are_told_at_their_rank(make):
    feed = make()
    feed.begin_epoch(0, work=None)
    bad = RankTelemetry(rank=1, work=10, sums={"loss": (1.0, 1)}, nonfinite={"loss": {"nan": 2}})
    feed.window([told(0, 3.0), bad])
    feed.end_epoch(0, duration_secs=1.0)
    assert current(feed, "root")["nonfinite"] == {"loss": {"nan": 2}}
    assert current(feed, "root")["metrics"]["loss"] == 2.0
    (alert,) = feed.board.tree.alerts()
    assert (alert["class"], alert["sev"], alert["path"]) == (
        "nonfinite",
        "critical",
        "root/beta/rank1",
    )


def test_an_epoch_of_unknown_work_is_taken_to_be_as_long_as_the_one_before(make, clock):
    feed = make(["a", "a"], reports=2)
    ticks = []
    for epoch in range(2):
        feed.begin_epoch(epoch, work=None)
        for window in range(4):
            clock.now += 1
            if feed.window([told(0), told(1)]):
                ticks.append((epoch, window))
        feed.end_epoch(epoch, duration_secs=4.0)
    assert ticks == [(1, 1), (1, 3)]


def test_reports_within_an_epoch_say_how_much_time_is_left(make, clock):
    feed = make(["a", "a"], reports=2)
    for epoch in range(2):
        feed.begin_epoch(epoch, work=80)
        for _ in range(4):
            clock.now += 1
            feed.window([told(0), told(1)])
            if epoch:
                assert feed.board.progress["epoch"] == 1
        if not epoch:
            feed.end_epoch(epoch, duration_secs=4.0)
    # two epochs of four seconds are left after this one
    assert feed.board.progress["eta"] == pytest.approx(8.0)


def test_resources_go_to_a_timeline_as_they_come():
    samples = []
    feed = RankFeed(RunBoard(), RecordTier(HOSTS), on_sample=lambda *sample: samples.append(sample))
    feed.join(2, "beta")
    feed.resources(
        RankTelemetry(
            rank=2,
            res={"gpu_util": (1.0, 2.0, 3.0), "vram_total": 8},
            host_res={"cpu": 5.0},
            label="GTX",
            device=1,
        )
    )
    feed.window([told(2)])
    ((member, host, sample),) = samples
    assert (member, host, sample.cpu_percent, sample.ram_used_bytes) == (2, "beta", 5.0, None)
    (gpu,) = sample.gpus
    assert (gpu.device_index, gpu.name, gpu.util_percent) == (1, "GTX", 2.0)
    assert (gpu.vram_total_bytes, gpu.vram_allocated_bytes) == (8, None)


def test_what_a_window_took_may_be_told_instead_of_measured(make, clock):
    feed = make(["a", "a"], reports=1)
    # the epoch is known of only when its first window is done
    feed.begin_epoch(0, work=40)
    assert feed.window([told(0), told(1)], wall_ms=250.0) == []
    feed.window([told(0), told(1)], wall_ms=250.0)
    assert current(feed, "root/rank0")["metrics"]["throughput"] == pytest.approx(20 / 500)
    assert current(feed, "root")["metrics"]["throughput"] == pytest.approx(40 / 500)


def test_a_result_that_comes_after_its_epoch_joins_it(make, clock):
    feed = make(["a", "a"])
    feed.begin_epoch(0, work=20)
    feed.window([told(0), told(1)])
    feed.end_epoch(0, duration_secs=1.0, step=2)
    (made,) = feed.evaluated(0, {"accuracy": 0.5})
    body = made.body()
    assert (body["path"], body["epoch"], body["epoch_complete"]) == ("root", 0, True)
    assert body["metrics"] == {"accuracy": 0.5}
    assert current(feed, "root")["metrics"]["loss"] == 1.0
    (epoch,) = [json.loads(line) for line in feed.board.epochs()]
    assert (epoch["metrics"]["accuracy"], epoch["metrics"]["loss"]) == (0.5, 1.0)
    feed.evaluated(3, {"accuracy": 0.9})
    assert json.loads(feed.board.epochs()[0])["metrics"]["accuracy"] == 0.5


def test_who_comes_back_goes_on_with_what_it_did_in_the_epoch(make, clock):
    feed = make(["a", "a"])
    feed.begin_epoch(0, work=40)
    feed.window([told(0), told(1)])
    feed.lose(1, "signal 9")
    assert feed.window([told(1)]) == []
    feed.join(1, "a", label="other card")
    feed.window([told(0), told(1)])
    feed.end_epoch(0, duration_secs=1.0)
    assert current(feed, "root/rank1")["work"] == 20
    assert current(feed, "root/rank1")["label"] == "other card"
    assert current(feed, "root")["alive"] == 2


def test_the_processor_is_named_where_one_host_is_all_there_is(make):
    one, several = make(["a", "a"]), make(["a", "b"])
    host_res = {"cpu": 5.0, "cpus": 4, "ram_used": 1 << 30, "ram_total": 8 << 30}
    for feed in (one, several):
        feed.resources(RankTelemetry(rank=0, host_res=host_res))
        feed.tick()
        feed.tick()
    assert one.board.api_meta()["hardware"] is None  # nothing is shown within the pause
    one._clock.now += 2
    for feed in (one, several):
        feed.tick()
    assert one.board.api_meta()["hardware"].endswith("(4 threads, 8GB)")
    assert several.board.api_meta()["hardware"] is None
