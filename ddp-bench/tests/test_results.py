import json
import math

import pytest

from ddp_bench.results import FinalResult, dump_json, thin_curve

SCHEMA_1 = {
    "schema", "model", "mode", "profile", "seed", "world", "device_class", "status", "error",
    "config", "data", "init_hash", "epochs", "loss_curve", "final", "coverage", "wall", "sync",
    "elche", "divergence", "memory", "capture", "env",
}  # fmt: skip


def test_document_has_the_fields_of_schema_1(make_result):
    document = json.loads(dump_json(make_result().as_json()))
    assert set(document) == SCHEMA_1
    assert document["schema"] == 1
    assert set(document["data"]) >= {"name", "sha256", "n_train", "n_test"}
    assert set(document["epochs"][0]) >= {"epoch", "loss", "eval", "scalars", "wall_ms", "share"}
    assert set(document["final"]) == {"train_loss", "eval", "metric", "higher_is_better"}
    assert set(document["coverage"]) == {"expected", "seen", "duplicates"}
    assert set(document["wall"]) == {"train_only_s", "eval_s", "total_s"}


def test_what_was_not_measured_is_null(make_result):
    document = make_result().as_json()
    assert [document[key] for key in ("sync", "elche", "divergence", "memory", "capture")] == [
        None
    ] * 5


def test_number_that_is_not_finite_is_written_as_null(make_result):
    final = FinalResult(
        train_loss=math.nan, eval=math.inf, metric="accuracy", higher_is_better=True
    )
    document = json.loads(dump_json(make_result(final=final).as_json()))
    assert (document["final"]["train_loss"], document["final"]["eval"]) == (None, None)


@pytest.mark.parametrize(("steps", "points"), [(0, 0), (1, 1), (400, 400), (401, 201), (9999, 400)])
def test_curve_has_at_most_400_points_and_ends_at_the_last_step(steps, points):
    curve = thin_curve([float(step) for step in range(steps)])
    assert len(curve) == points
    assert not steps or curve[-1][0] == steps


def test_point_of_a_curve_is_the_mean_of_its_stretch():
    assert thin_curve([1.0, 3.0, 5.0, 7.0, 9.0], points=3) == [[2, 2.0], [4, 6.0], [5, 9.0]]
