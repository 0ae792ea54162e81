import pytest
import torch

from flodl.monitor.errors import MetricTypeError
from flodl.monitor.sums import ScalarSums


def test_numbers_and_tensors_are_summed_and_counted():
    sums = ScalarSums()
    sums.add({"a": 1.0, "b": torch.tensor(2.0)})
    sums.add({"a": 3, "b": torch.tensor(4.0, requires_grad=True)})
    sums.add({"b": torch.tensor(6.0, dtype=torch.bfloat16)})
    assert sums.begin_read().take() == {"a": (4.0, 2), "b": (12.0, 3)}
    assert sums.begin_read().take() == {}


def test_a_tensor_that_is_reused_is_read_when_it_is_added():
    sums, buffer = ScalarSums(), torch.tensor(1.0)
    sums.add({"x": buffer})
    buffer.fill_(5.0)
    assert sums.begin_read().take() == {"x": (1.0, 1)}


def test_integers_on_a_device_do_not_wrap():
    sums = ScalarSums()
    for _ in range(3):
        sums.add({"x": torch.tensor(200, dtype=torch.uint8)})
    assert sums.begin_read().take() == {"x": (600.0, 3)}


@pytest.mark.parametrize("value", [torch.zeros(3), "a", None])
def test_what_is_no_scalar_is_refused_and_nothing_is_added(value):
    sums = ScalarSums()
    with pytest.raises(MetricTypeError, match="x"):
        sums.add({"good": 1.0, "x": value})
    assert sums.begin_read().take() == {}


def test_a_complex_number_is_refused():
    sums = ScalarSums()
    with pytest.raises(MetricTypeError, match="a complex number"):
        sums.add({"good": 1.0, "x": torch.tensor(1 + 2j)})
    assert sums.begin_read().take() == {}


def test_numbers_of_both_kinds_and_booleans_count_alike():
    sums = ScalarSums()
    sums.add({"x": 1, "y": 0.5})
    sums.add({"x": True, "y": torch.tensor(2)})
    sums.add({"x": 2.5, "y": 1})
    assert sums.begin_read().take() == {"x": (4.5, 3), "y": (3.5, 3)}


@pytest.mark.cuda
def test_adding_on_a_device_waits_for_nothing():
    sums = ScalarSums()
    values = {f"k{n}": torch.tensor(float(n), device="cuda") for n in range(8)}
    sums.add(values)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            sums.add(values)
        pending = sums.begin_read()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert pending.take() == {f"k{n}": (6.0 * n, 6) for n in range(8)}
