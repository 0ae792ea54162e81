import pytest

from flodl.core.paths import RecordTier
from flodl.distributed.controller.commands import (
    Finish,
    PublishEpoch,
    PublishEval,
    PublishProgress,
    PublishWindow,
    RaiseAlert,
    StateChanged,
    ToMember,
    ToMembers,
)
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.protocol.messages import (
    AlertRaised,
    CallbackDone,
    LogLine,
    Nack,
    Reduced,
    TelemetryRecord,
    Throttle,
    World,
)
from flodl.distributed.protocol.values import Device, Place
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.plane import RunPlane
from flodl.monitor.saved_page import SavedPage
from flodl.monitor.timeline import Timeline
from flodl.records.board import RunBoard
from flodl.records.feed import RankFeed
from flodl.trainer.ranks.audience import RunAudience

PLAN = WorkPlan(samples=100, batch_size=10, num_epochs=2, drop_last=False, splits=1)
CPU = Device(uuid="cpu", name="a processor")


class Clock:
    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Chronicle:
    """Keeps what it is told, as a list of names and what came with them."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *args: self.told.append((name, *args))


def run_of_two(devices=(CPU, CPU), hosts=("alpha", "alpha"), **options):
    board = RunBoard()
    feed = RankFeed(board, RecordTier(hosts), reports_per_epoch=10, clock=Clock())
    audience = RunAudience(feed, PLAN, devices=devices, on_cpu=True, **options)
    audience.plane = RunPlane(board)
    audience.take(ToMembers(uids=("u/0", "u/1"), gen=1, message=world(hosts)))
    return audience, board


def world(hosts, is_new=False):
    members = tuple(
        Place(uid=f"u/{n}", rank=n, number=n, host=host, is_new=is_new)
        for n, host in enumerate(hosts)
    )
    return World(gen=1, members=members, topology="flat", nonce="n", timeouts={}, version=0)


def window(number=1, epoch=0, **values):
    row = {
        "steps": 4.0, "samples": 20.0, "wall_ms": 40.0, "loss": 0.5, "top1": 0.75,
        "compute_ms": 36.0, "starve_ms": 2.0,
    }  # fmt: skip
    given = {"window_ms": 50.0, "samples": 40.0, "global_step": 8.0, "anchor": 4.0, **values}
    rows = {"u/0": row, "u/1": {**row, "loss": 1.5}}
    return PublishWindow(window=number, epoch=epoch, values=given, per_member=rows)


def end_of_epoch():
    metrics = EpochMetrics(
        epoch=0, avg_loss=1.0, epoch_ms=100.0, batches_processed=8, samples_processed=40, lr=0.1
    )
    return PublishEpoch(metrics=metrics)


def test_a_window_becomes_records_of_its_ranks_and_of_the_run():
    audience, board = run_of_two()
    audience.take(window(reduce_ms=6.0, divergence=0.25, lambda_ema=0.1))
    rank, root = board.tree.current("root/rank1"), board.tree.current("root")
    assert rank["metrics"]["loss"] == 1.5
    assert rank["metrics"]["compute_only_ms"] == 9.0
    assert rank["metrics"]["data_starve"] == 0.5
    assert "steps" not in rank["metrics"]
    assert rank["label"] == "a processor"
    assert "device" not in rank
    assert root["metrics"]["loss"] == 1.0
    assert {k: root["metrics"][k] for k in ("anchor", "cpu_avg_ms", "d_raw", "lambda_ema")} == {
        "anchor": 4.0, "cpu_avg_ms": 6.0, "d_raw": 0.25, "lambda_ema": 0.1,
    }  # fmt: skip
    assert not {"samples", "global_step", "window_ms"} & root["metrics"].keys()
    assert root["step"] == 8


def progress(uid, samples=20.0, steps=4.0, loss=1.0, epoch=0):
    row = {
        "steps": steps, "samples": samples, "wall_ms": 999.0, "loss": loss,
        "compute_ms": 36.0, "starve_ms": 4.0,
    }  # fmt: skip
    return PublishProgress(uid=uid, epoch=epoch, global_step=7, values=row)


def test_reports_of_steps_that_are_averaged_are_shown_once_every_rank_has_told():
    audience, board = run_of_two()
    audience.take(progress("u/0"))
    audience.take(progress("u/0"))
    audience.take(progress("u/7"))
    assert "metrics" not in board.tree.current("root/rank0")
    audience.take(progress("u/1", loss=4.0))
    rank, root = board.tree.current("root/rank0"), board.tree.current("root")
    # rank 0 told twice: 80 ms in all, in which both did 60 samples
    assert rank["metrics"]["throughput"] == pytest.approx(40 / 80)
    assert root["metrics"]["throughput"] == pytest.approx(60 / 80)
    assert root["metrics"]["loss"] == pytest.approx(2.0)
    assert (root["step"], root["epoch"]) == (7, 0)


def test_what_is_left_of_such_reports_counts_for_its_epoch():
    audience, board = run_of_two()
    audience.take(progress("u/0"))
    whole = PublishWindow(
        window=1, epoch=0, values={"reduce_ms": 0.0, "anchor": 1.0}, per_member={}
    )
    audience.take(whole)
    audience.take(end_of_epoch())
    assert board.tree.current("root/rank0")["work"] == 20
    assert "cpu_avg_ms" not in board.tree.current("root")["metrics"]


def test_ranks_on_gpus_have_a_device_and_their_average_is_a_sync():
    gpu = Device(uuid="GPU-1", name="a card", index=3)
    audience, board = run_of_two(devices=(gpu, gpu))
    audience._average = "sync_ms"
    audience.take(window(reduce_ms=6.0))
    assert board.tree.current("root/rank0")["device"] == 3
    assert board.tree.current("root")["metrics"]["sync_ms"] == 6.0


def test_resources_reach_the_rank_and_its_host():
    audience, board = run_of_two(hosts=("alpha", "beta"))
    told = {
        "rank": 99,
        "res": {"gpu_util": [0.0, 40.0, 90.0], "vram_alloc": [1, 2, 3], "vram_total": 8},
        "host_res": {"cpu": 25.0, "ram_used": 4, "ram_total": 16, "cpus": 2},
    }
    audience.hear("u/1", TelemetryRecord(path="", values=told))
    audience.tick()
    res = board.tree.current("root/beta/rank1")["res"]
    assert (res["gpu_util"], res["gpu_util_max"], res["gpus"]) == (40.0, 90.0, 1)
    assert board.tree.current("root/beta")["res"]["cpu"] == 25.0
    assert "cpu" not in res
    assert "res" not in board.tree.current("root/alpha/rank0")
    root = board.tree.current("root")["res"]
    assert (root["gpu_util"], root["gpus"]) == (40.0, 1)


def test_who_was_never_met_is_not_heard():
    audience, board = run_of_two()
    audience.hear("u/7", TelemetryRecord(path="", values={"host_res": {"cpu": 1.0}}))
    audience.hear("u/7", AlertRaised(code="capture", message="eager"))
    audience.tick()
    assert "res" not in (board.tree.current("root") or {})
    assert board.tree.alerts() == []


def test_the_result_of_an_evaluation_is_shown_though_its_epoch_is_over():
    audience, board = run_of_two()
    audience.take(window())
    audience.take(end_of_epoch())
    audience.take(PublishEval(epoch=0, values={"accuracy": 0.9}))
    root = board.tree.current("root")
    assert (root["metrics"]["accuracy"], root["metrics"]["loss"]) == (0.9, 1.0)
    (epoch,) = board.epochs()
    assert b'"accuracy":0.9' in epoch
    newest = board.tree.recent_rows("root", 1)[0].body()
    assert (newest["epoch"], newest["epoch_complete"]) == (0, True)
    assert newest["metrics"] == {"accuracy": 0.9}


def test_alerts_and_lines_of_a_rank_stand_at_its_path():
    audience, board = run_of_two()
    audience.hear("u/1", AlertRaised(code="capture", message="stays eager"))
    audience.hear("u/0", AlertRaised(code="own_kind", message="odd", level="error"))
    audience.hear("u/0", LogLine(level="warning", text="slow disk"))
    audience.hear("u/0", Nack(kind="commit", seq=0, reason="not expected while joining"))
    assert {(a["path"], a["class"], a["sev"], a["detail"]) for a in board.tree.alerts()} == {
        ("root/rank1", "capture", "warn", "stays eager"),
        ("root/rank0", "own_kind", "critical", "odd"),
        (
            "root/rank0",
            "control_drop",
            "critical",
            "'commit' was not taken: not expected while joining",
        ),
    }
    lines = [r.body() for r in board.tree.history("root/rank0").records if r.kind == "log"]
    assert [(line["text"], line["sev"]) for line in lines] == [("slow disk", "warn")]


def test_a_lost_rank_is_told_once_and_comes_back_with_what_it_did():
    audience, board = run_of_two()
    audience.take(window())
    audience.take(RaiseAlert(code="rank_lost", message="signal 9", fields={"rank": 1}))
    assert board.tree.current("root")["alive"] == 1
    audience.take(ToMembers(uids=("u/1",), gen=2, message=world(("alpha", "alpha"), is_new=True)))
    assert board.tree.current("root")["alive"] == 2
    audience.take(end_of_epoch())
    assert board.tree.current("root/rank1")["work"] == 20
    assert [a["class"] for a in board.tree.alerts()].count("rank_lost") == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (ToMember(uid="u/1", gen=1, message=Throttle(reason="ahead")), ("throttled", 1)),
        (RaiseAlert(code="rank_lost", message="gone", fields={"rank": 0}), ("lost", 0)),
    ],
)
def test_the_chronicle_hears_of_what_the_controller_does(command, told):
    audience, _ = run_of_two()
    audience.chronicle = Chronicle()
    audience.take(command)
    assert audience.chronicle.told == [told]


def test_the_chronicle_hears_of_what_ranks_do():
    audience, _ = run_of_two()
    audience.chronicle = Chronicle()
    done = CallbackDone(kind="eval", epoch=0, attempt=1, ms=3.0)
    audience.hear("u/0", done)
    audience.hear("u/1", Reduced(window=1, delta=0.5))
    audience.hear("u/0", Reduced(window=1))
    audience.hear("u/1", Nack(kind="commit", seq=0, reason="too late"))
    audience.hear("u/1", AlertRaised(code="capture", message="stays eager"))
    audience.hear("u/1", AlertRaised(code="own_kind", message="odd"))
    assert audience.chronicle.told == [
        ("callback_done", done),
        ("drifted", 1, 0.5),
        ("missed", "commit"),
        ("fell_back", "stays eager"),
    ]


def test_settings_stay_beside_what_the_launcher_sets():
    audience, board = run_of_two(settings={"ranks": 2, "seed": 1})
    audience.direct({"op": "monitor", "command": {"op": "metadata", "metadata": {"seed": 7}}})
    assert board.metadata == {"ranks": 2, "seed": 7}
    audience.direct({"op": "other"})
    audience.take(StateChanged(state="training"))
    assert board.metadata == {"ranks": 2, "seed": 7}


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (None, "failed"),
        (Finish(reason="done"), "done"),
        (Finish(reason="stop_training"), "done"),
        (Finish(reason="graceful_shutdown", is_partial=True), "aborted"),
        (Finish(reason="all_ranks_lost", is_failed=True), "failed"),
    ],
)
def test_viewers_are_told_how_the_run_ended(finish, status):
    audience, _ = run_of_two()
    if finish is not None:
        audience.take(finish)
    assert audience.outcome == status


def test_a_controller_that_is_told_to_end_leaves_the_page(tmp_path):
    audience, board = run_of_two()
    audience.plane.save_page(SavedPage(path=tmp_path / "page.html"))
    audience.take(window())
    audience.terminated()
    assert board.status == "aborted"
    assert '"status":"aborted"' in (tmp_path / "page.html").read_text()


def test_hosts_that_are_levels_have_the_timeline_of_their_ranks():
    board, timeline = RunBoard(), Timeline(poll_ms=0, spill=False)
    hosts = ("alpha", "beta")
    feed = RankFeed(board, RecordTier(hosts), on_sample=timeline.rank_sample)
    audience = RunAudience(feed, PLAN)
    audience.plane = RunPlane(board)
    audience.plane.timeline = timeline
    audience.take(ToMembers(uids=("u/0", "u/1"), gen=1, message=world(hosts)))
    assert set(board.timelines) == {"alpha", "beta"}
    audience.hear("u/1", TelemetryRecord(path="", values={"host_res": {"cpu": 40.0}}))
    assert board.timelines["alpha"].body()["rank_samples"] == []
    (row,) = board.timelines["beta"].body()["rank_samples"]
    assert (row["rank"], row["cpu"]) == (1, 40)
