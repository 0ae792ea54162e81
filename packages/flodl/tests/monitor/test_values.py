from decimal import Decimal

import numpy as np
import pytest
import torch

from flodl.metrics import EpochMetrics
from flodl.monitor.errors import MetricTypeError
from flodl.monitor.values import metric_values


class FakeGraph:
    def latest_metrics(self):
        return {"loss": torch.tensor(0.5), "encoder.scan.loss": 0.25}


@pytest.mark.parametrize(
    "value",
    [1.5, np.float32(1.5), np.array(1.5), torch.tensor(1.5), torch.tensor([[1.5]]), Decimal("1.5")],
)
def test_whatever_is_one_number_is_a_value(value):
    assert metric_values({"x": value}) == {"x": 1.5}


def test_integers_booleans_and_what_is_not_finite_are_values():
    values = metric_values([("a", 3), ("b", True), ("c", float("nan")), ("d", float("inf"))])
    assert list(values) == ["a", "b", "c", "d"]
    assert values["a"] == 3.0
    assert str(values["c"]) == "nan"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.zeros(2), r"shape \(2,\)"),
        (torch.tensor(1j), "complex64"),
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (1j, "complex"),
        ("0.5", "str '0.5'"),
        (None, "NoneType"),
        ([1.0], "list"),
    ],
)
def test_anything_else_is_refused_by_name_and_type(value, told):
    with pytest.raises(MetricTypeError, match=rf"'x'.*{told}"):
        metric_values({"good": 1.0, "x": value})


def test_something_without_names_is_refused():
    with pytest.raises(MetricTypeError, match="float"):
        metric_values(0.5)


def test_a_graph_gives_its_latest_metrics_and_extras_win():
    assert metric_values(FakeGraph()) == {"loss": 0.5, "encoder.scan.loss": 0.25}
    values = metric_values((FakeGraph(), {"accuracy": 0.9, "loss": torch.tensor(0.125)}))
    assert list(values) == ["loss", "encoder.scan.loss", "accuracy"]
    assert values["loss"] == 0.125


def test_two_pairs_are_not_taken_for_a_graph_with_extras():
    assert metric_values((("a", 1.0), ("b", 2.0))) == {"a": 1.0, "b": 2.0}


def test_epoch_metrics_put_the_loss_first():
    metrics = EpochMetrics(
        epoch=0,
        avg_loss=0.5,
        epoch_ms=1.0,
        batches_processed=1,
        samples_processed=1,
        scalars={"b": 2.0, "a": 1.0},
        eval={"accuracy": 0.9},
        lr=0.1,
    )
    assert list(metric_values(metrics)) == ["loss", "accuracy", "a", "b"]


@pytest.mark.cuda
def test_values_on_a_device_are_read_in_one_copy():
    values = {f"k{n}": torch.tensor(float(n), device="cuda") for n in range(20)}
    assert metric_values(values) == {f"k{n}": float(n) for n in range(20)}
