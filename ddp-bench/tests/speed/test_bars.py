import pytest

from ddp_bench.speed.bars import MEAN, failures, is_data_center, judge, missed
from ddp_bench.speed.compare import Comparison

H200 = "NVIDIA H200"


def verdicts(rows, gpu=H200, policy="step"):
    found = judge(Comparison(rows, policy), gpu)
    return {(verdict.bar, verdict.subject): verdict for verdict in found}


def test_default_trainer_is_judged_against_eager(make_row):
    row = make_row(arm="flodl-captured", median_epoch_ms=89.0)
    assert verdicts([make_row(), row])["flodl-captured / torch-eager", "mlp"].holds
    row = make_row(arm="flodl-captured", median_epoch_ms=91.0)
    assert not verdicts([make_row(), row])["flodl-captured / torch-eager", "mlp"].holds


def test_upper_end_of_the_interval_must_be_within_the_bar(make_row):
    times = (80.0, 85.0, 95.0)
    rows = [make_row(round=number) for number in range(3)]
    rows += [
        make_row(arm="flodl-captured", round=number, median_epoch_ms=ms)
        for number, ms in enumerate(times)
    ]
    verdict = verdicts(rows)["flodl-captured / torch-eager", "mlp"]
    assert verdict.found.value == 0.85
    assert not verdict.holds


def test_tie_passes_a_bar_of_one_and_no_other(make_row):
    row = make_row(arm="flodl-graph", median_epoch_ms=101.0)
    found = verdicts([make_row(), row])
    assert found["best flodl / best torch", "mlp"].most == 1.0
    assert found["best flodl / best torch", "mlp"].holds
    slow = make_row(arm="flodl-graph", median_epoch_ms=103.0)
    assert not verdicts([make_row(), slow])["best flodl / best torch", "mlp"].holds


def test_geometric_mean_is_over_the_ten(make_row):
    rows = []
    for name, ms in (("mlp", 20.0), ("convnet", 80.0), ("feedback_loop", 500.0)):
        rows += [make_row(name=name), make_row(name=name, arm="flodl-captured", median_epoch_ms=ms)]
    verdict = verdicts(rows)["flodl-captured / torch-eager", MEAN]
    assert verdict.found.value == pytest.approx(0.4)
    assert not verdict.holds


def test_other_gpus_are_held_to_the_published_ratios(make_row):
    row = make_row(arm="flodl-captured", median_epoch_ms=72.0)
    found = verdicts([make_row(), row], "NVIDIA GeForce RTX 5060 Ti")
    assert found["flodl-captured / torch-eager", "mlp"].most == 0.71
    assert not found["flodl-captured / torch-eager", "mlp"].holds


def test_capture_is_judged_against_capture_by_hand(make_row):
    rows = [
        make_row(arm="torch-manual-graph", median_epoch_ms=50.0),
        make_row(arm="flodl-step", median_epoch_ms=51.0),
        make_row(arm="flodl-captured", median_epoch_ms=52.0),
    ]
    found = verdicts(rows)
    assert found["flodl-step / torch-manual-graph", "mlp"].holds
    assert not found["flodl-captured / torch-manual-graph", "mlp"].holds


def test_memory_is_judged_against_the_fused_arm(make_row):
    rows = [
        make_row(arm="torch-fused", vram_reserved_mb=100.0),
        make_row(arm="flodl-captured", vram_reserved_mb=126.0),
    ]
    found = verdicts(rows)["reserved memory, flodl-captured / torch-fused", "mlp"]
    assert (found.found.value, found.holds) == (1.26, False)


def test_bars_set_for_losses_of_every_step_are_judged_there_only(make_row):
    rows = [
        make_row(sync_policy="epoch"),
        make_row(sync_policy="epoch", arm="flodl-captured", median_epoch_ms=95.0),
    ]
    found = verdicts(rows, policy="epoch")
    assert ("flodl-captured / torch-eager", "mlp") not in found
    assert ("best flodl / best torch", "mlp") in found


def test_processor_has_bars_of_its_own(make_row):
    rows = [
        make_row(median_epoch_ms=100.0),
        make_row(arm="flodl-graph", median_epoch_ms=101.0),
        make_row(arm="flodl-trainer", median_epoch_ms=105.0),
    ]
    found = verdicts(rows, None)
    assert found["flodl-graph / torch-eager", "mlp"].holds
    assert not found["flodl-trainer / flodl-graph", "mlp"].holds


def test_host_cost_is_what_a_loop_takes_beyond_the_plain_one(make_row):
    rows = [
        make_row(name="noop", median_epoch_ms=10.0),
        make_row(name="noop", arm="flodl-trainer", median_epoch_ms=14.0),
        make_row(name="noop", arm="lightning", median_epoch_ms=30.0),
    ]
    (verdict,) = verdicts(rows, None).values()
    assert (verdict.found.value, verdict.holds) == (0.2, True)


def test_failed_arm_of_flodl_is_named_and_one_of_torch_is_not(make_row):
    rows = [
        make_row(arm="flodl-captured", error="out of memory"),
        make_row(arm="torch-compile", error="no compiler"),
    ]
    assert failures(Comparison(rows, "step")) == ["mlp/flodl-captured: out of memory"]


def test_missed_bars_are_those_that_do_not_hold(make_row):
    found = judge(Comparison([make_row(), make_row(arm="flodl-graph")], "step"), H200)
    assert missed(found) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [(H200, True), ("NVIDIA A100-SXM4-80GB", True), ("NVIDIA GeForce GTX 1060", False)],
)
def test_cards_of_data_centers_are_told_by_name(name, expected):
    assert is_data_center(name) is expected
