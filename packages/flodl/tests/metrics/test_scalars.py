import numpy
import pytest
import torch

from flodl.metrics import ScalarScope, drain_scalars, record_scalar


def test_the_mean_is_over_the_calls_of_the_scope():
    scope = ScalarScope()
    with scope.active():
        for value in (1.0, 2.0, 6.0):
            record_scalar("accuracy", value)
        record_scalar("lr", 0.5)
    assert scope.means() == {"accuracy": 3.0, "lr": 0.5}


def test_tensors_and_numbers_of_any_kind_mix():
    scope = ScalarScope()
    with scope.active():
        record_scalar("x", torch.tensor(1.0, requires_grad=True))
        record_scalar("x", torch.tensor([2.0]))
        record_scalar("x", numpy.float32(3.0))
        record_scalar("x", 4)
    assert scope.drain() == {"x": (10.0, 4)}


def test_a_recorded_tensor_keeps_no_graph_alive():
    scope = ScalarScope()
    scope.add("x", torch.ones((), requires_grad=True) * 2)
    assert not scope._sums["x"].requires_grad


def test_a_later_change_of_a_recorded_tensor_does_not_change_the_sum():
    scope = ScalarScope()
    value = torch.tensor(1.0)
    scope.add("x", value)
    value.fill_(100.0)
    assert scope.means() == {"x": 1.0}


def test_draining_starts_afresh():
    scope = ScalarScope()
    scope.add("x", 1)
    scope.drain()
    assert scope.drain() == {}


def test_scopes_nest():
    outer, inner = ScalarScope(), ScalarScope()
    with outer.active():
        with inner.active():
            record_scalar("x", 1)
        record_scalar("x", 2)
    assert inner.means() == {"x": 1.0}
    assert outer.means() == {"x": 2.0}


def test_outside_a_run_the_value_is_dropped_with_one_warning(caplog):
    record_scalar("orphan", 1.0)
    record_scalar("orphan", 2.0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'orphan'" in caplog.text


@pytest.mark.parametrize("value", [torch.ones(2), "high", None])
def test_a_value_that_is_no_scalar_is_refused_by_name(value):
    with pytest.raises(TypeError, match="'loss'"):
        ScalarScope().add("loss", value)


def test_draining_takes_what_was_recorded_so_far_and_no_more():
    scope = ScalarScope()
    with scope.active():
        record_scalar("x", torch.tensor(1.5))
        record_scalar("x", 0.5)
        assert drain_scalars() == {"x": (2.0, 2)}
        assert drain_scalars() == {}
        record_scalar("x", 4.0)
    assert scope.means() == {"x": 4.0}


def test_outside_a_run_there_is_nothing_to_drain():
    assert drain_scalars() == {}
