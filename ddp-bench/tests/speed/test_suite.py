import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest

from ddp_bench.errors import BenchError
from ddp_bench.speed import lightning_arm, suite
from ddp_bench.speed.arms import choose
from ddp_bench.speed.crew import WorkerFailedError
from ddp_bench.speed.models import find
from ddp_bench.speed.results import load
from ddp_bench.speed.suite import Sitting, Suite, SuiteConfig


class FakeWorker:
    """Trains at once; writes down whose turn it was."""

    turns: ClassVar[list[tuple[str, str, bool]]] = []
    broken: ClassVar[dict[str, int]] = {}

    def __init__(self, task, environment):
        self.task = task
        self.environment = environment
        self.calls = 0

    def ready(self):
        if self.broken.get(self.task.arm) == 0:
            raise WorkerFailedError("out of memory")
        return {
            "batches_per_epoch": 10, "batch_size": 64, "param_count": 5, "losses": [1.0],
            "loss": 1.0, "ms": 50.0, "first_step_ms": 20.0, "settings": {"threads": 1},
        }  # fmt: skip

    def run(self, policy, epochs, *, reset_memory=False):
        self.calls += 1
        self.turns.append((self.task.arm, policy, reset_memory))
        if self.broken.get(self.task.arm) == self.calls:
            raise WorkerFailedError("lost")
        ms = [1000.0, *(float(10 * self.calls + number) for number in range(epochs - 1))]
        return {
            "epochs": [{"ms": t, "cpu_ms": t / 2, "host_ms": t / 4, "loss": 0.5} for t in ms],
            "memory": {"vram_mb": None, "vram_reserved_mb": None, "rss_mb": 100.0},
        }

    def end(self):
        return {"pool_mb": 3.0}

    def close(self):
        pass


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs the suite with fake workers."""
    monkeypatch.setattr(suite, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "turns", [])
    monkeypatch.setattr(FakeWorker, "broken", {})

    def run(**changes):
        config = SuiteConfig(
            models=(find("mlp"),),
            arms=choose("cpu", ["torch-eager", "torch-fused", "flodl-graph"]),
            device="cpu",
            dims="small",
            policies=("step",),
            rounds=2,
            runs=2,
            epochs=3,
            warmup=1,
            output=tmp_path,
        )
        return Suite(dataclasses.replace(config, **changes), {"torch": "2"}, lambda _: None).run()

    return run


def test_order_of_the_arms_is_rotated(run):
    run(rounds=2, runs=1, discarded=0)
    order = [arm for arm, _, _ in FakeWorker.turns]
    assert order[:3] == ["torch-eager", "torch-fused", "flodl-graph"]
    assert order[3:] == ["torch-fused", "flodl-graph", "torch-eager"]


def test_sample_of_a_round_is_the_lowest_median_after_warm_up(run):
    row = run(rounds=1)[0]
    # call 1 is discarded; of calls 2 and 3 the epochs after the first count
    assert row.run_medians_ms == [21.0, 31.0]
    assert row.epoch_times_ms == [20.0, 21.0, 22.0]
    assert (row.median_epoch_ms, row.median_cpu_ms) == (21.0, 10.5)


def test_memory_is_measured_from_the_first_run_that_counts(run):
    run(rounds=1, runs=2)
    resets = [reset for arm, _, reset in FakeWorker.turns if arm == "torch-eager"]
    assert resets == [False, True, False]


def test_host_time_is_told_where_losses_are_read_once(run):
    rows = run(rounds=1, policies=("step", "epoch"))
    times = {row.sync_policy: row.host_us_per_step for row in rows if row.arm == "torch-eager"}
    assert times["step"] is None
    assert times["epoch"] is not None


def test_results_are_saved_with_what_was_learned_at_the_end(run, tmp_path):
    rows = run()
    assert {row.capture["pool_mb"] for row in rows} == {3.0}
    assert sorted(load(tmp_path), key=lambda r: r.key) == sorted(rows, key=lambda r: r.key)


def test_arm_that_does_not_start_is_kept_with_its_reason(run):
    FakeWorker.broken["torch-fused"] = 0
    rows = run()
    assert {row.error for row in rows if row.arm == "torch-fused"} == {"out of memory"}
    assert {row.error for row in rows if row.arm != "torch-fused"} == {None}


def test_arm_that_is_lost_on_the_way_has_no_times_and_holds_up_no_other(run):
    FakeWorker.broken["torch-fused"] = 4
    rows = run()
    assert {row.error for row in rows if row.arm == "torch-fused"} == {"lost"}
    assert len([row for row in rows if row.error is None]) == 4


def test_strict_suite_ends_where_an_arm_of_flodl_does_not_start(run):
    FakeWorker.broken["flodl-graph"] = 0
    with pytest.raises(BenchError, match="mlp/flodl-graph did not start: out of memory"):
        run(is_strict=True)
    assert FakeWorker.turns == []


def test_strict_suite_goes_on_without_an_arm_of_torch(run):
    FakeWorker.broken["torch-fused"] = 0
    assert len(run(is_strict=True)) == 6


def test_missing_lightning_is_named(run, monkeypatch):
    monkeypatch.setattr(lightning_arm, "is_installed", lambda: False)
    rows = run(arms=choose("cpu", ["torch-eager", "lightning"]))
    assert rows[1].error == "not installed: pip install pytorch-lightning"


def test_attention_of_torch_is_measured_both_ways():
    config = SuiteConfig(
        models=(), arms=choose("cpu", ["torch-eager", "flodl-graph"]), device="cpu", dims="small"
    )
    tasks = Sitting(find("transformer"), config, {}, lambda _: None).tasks()
    assert [(t.arm, t.variant) for t in tasks] == [
        ("torch-eager", ""),
        ("torch-eager", "weights"),
        ("flodl-graph", ""),
    ]


def test_attention_is_measured_the_faster_way_alone_when_asked_for():
    arms = choose("cpu", ["torch-eager"])
    config = SuiteConfig(models=(), arms=arms, device="cpu", dims="small", has_variants=False)
    tasks = Sitting(find("transformer"), config, {}, lambda _: None).tasks()
    assert [task.variant for task in tasks] == [""]


def test_trial_runs_for_the_models_that_have_one():
    config = SuiteConfig(
        models=(), arms=choose("cuda", ["flodl-rewritten"]), device="cuda", dims="full"
    )
    counts = {n: len(Sitting(find(n), config, {}, print).tasks()) for n in ("mlp", "gated_routing")}
    assert counts == {"mlp": 0, "gated_routing": 1}


@pytest.mark.multiproc
def test_real_processes_train_the_same_and_leave_nothing(tmp_path):
    config = SuiteConfig(
        models=(find("noop"),),
        arms=choose("cpu", ["torch-eager", "flodl-trainer"]),
        device="cpu",
        dims="small",
        runs=1,
        discarded=0,
        epochs=1,
        warmup=0,
        starting=2,
        output=tmp_path,
        cache=Path(tmp_path / "cache"),
    )
    rows = Suite(config, {}, lambda _: None).run()
    assert [row.error for row in rows] == [None] * 4
    assert rows[0].first_epoch_loss == pytest.approx(rows[1].first_epoch_loss, rel=1e-4)
    assert all(row.median_epoch_ms > 0 for row in rows)
