import pytest

from ddp_bench.errors import UsageError
from ddp_bench.speed.compare import Comparison, checked


def errors(rows):
    return {row.arm: row.error for row in checked(rows)}


def test_arm_with_other_losses_is_void(make_row):
    rows = [make_row(), make_row(arm="flodl-graph", first_losses=[1.0, 0.9002])]
    found = errors(rows)
    assert found["torch-eager"] is None
    assert found["flodl-graph"].startswith("void: loss 0.9002 in step 1")


def test_compiled_arm_may_differ_more(make_row):
    rows = [make_row(), make_row(arm="torch-compile", first_losses=[1.0, 0.9017])]
    assert errors(rows)["torch-compile"] is None
    rows[1] = make_row(arm="torch-compile", first_losses=[1.0, 0.902])
    assert errors(rows)["torch-compile"].startswith("void")


def test_convolutions_may_differ_more(make_row):
    rows = [
        make_row(name="convnet"),
        make_row(name="convnet", arm="flodl-graph", first_losses=[1.001, 0.9]),
    ]
    assert errors(rows)["flodl-graph"] is None


def test_loss_that_is_no_number_is_void(make_row):
    rows = [make_row(), make_row(arm="flodl-graph", first_losses=[1.0, float("nan")])]
    assert errors(rows)["flodl-graph"].startswith("void")


def test_trainer_is_compared_by_the_mean_of_its_first_epoch(make_row):
    sound = make_row(arm="flodl-trainer", first_losses=[], first_epoch_loss=0.95001)
    assert errors([make_row(), sound])["flodl-trainer"] is None
    wrong = make_row(arm="flodl-trainer", first_losses=[], first_epoch_loss=0.96)
    assert "in the first epoch" in errors([make_row(), wrong])["flodl-trainer"]


def test_arm_that_was_to_be_captured_and_ran_eager_is_void(make_row):
    fell = {"ok": False, "reason": "host_sync: loss.item()"}
    found = errors([make_row(), make_row(arm="flodl-captured", capture=fell)])
    assert found["flodl-captured"] == "it ran in a lower mode: host_sync: loss.item()"


def test_loop_that_cannot_be_captured_is_kept_with_its_reason(make_row):
    fell = {"ok": False, "reason": "data_dependent_node"}
    row = make_row(name="feedback_loop", arm="flodl-captured", capture=fell)
    assert errors([row])["flodl-captured"] is None


def test_sizes_do_not_mix(make_row):
    with pytest.raises(UsageError, match="dims full and small"):
        checked([make_row(), make_row(arm="flodl-graph", dims="small")])


def test_times_come_round_by_round_whatever_the_order(make_row):
    rows = [make_row(round=1, median_epoch_ms=2.0), make_row(round=0, median_epoch_ms=1.0)]
    assert Comparison(rows, "step").times("mlp", "torch-eager") == [1.0, 2.0]
    assert Comparison(rows, "epoch").times("mlp", "torch-eager") is None


def test_processor_times_are_compared_when_asked_for(make_row):
    assert Comparison([make_row()], "step", "cpu").times("mlp", "torch-eager") == [90.0]


def test_faster_variant_of_an_arm_counts(make_row):
    rows = [
        make_row(name="transformer", median_epoch_ms=3.0),
        make_row(name="transformer", variant="weights", median_epoch_ms=2.0),
    ]
    comparison = Comparison(rows, "step")
    assert comparison.times("transformer", "torch-eager") == [2.0]
    assert comparison.row("transformer", "torch-eager").variant == "weights"


def test_best_of_a_side_leaves_out_what_failed_and_what_is_only_tried(make_row):
    rows = [
        make_row(arm="flodl-graph", median_epoch_ms=9.0),
        make_row(arm="flodl-captured", median_epoch_ms=1.0, error="void"),
        make_row(arm="flodl-rewritten", median_epoch_ms=1.0),
        make_row(arm="torch-manual-graph", median_epoch_ms=1.0),
        make_row(),
    ]
    comparison = Comparison(rows, "step")
    assert comparison.best("mlp", "flodl") == ("flodl-graph", [9.0])
    assert comparison.best("mlp", "torch") == ("torch-eager", [100.0])
    assert comparison.errors() == [("mlp", "flodl-captured", "void")]


def test_extra_models_come_last_and_are_not_of_the_ten(make_row):
    rows = [make_row(name=name) for name in ("noop", "residual_tower", "mlp")]
    comparison = Comparison(rows, "step")
    assert comparison.models() == ["mlp", "residual_tower", "noop"]
    assert comparison.ten() == ["mlp", "residual_tower"]
