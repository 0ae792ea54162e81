import math

import pytest
import torch

from flodl.nn import init


def of(**kwargs):
    return {"generator": torch.Generator().manual_seed(5), "dtype": torch.float64} | kwargs


@pytest.mark.parametrize(
    ("make", "bound"),
    [
        (lambda: init.xavier_uniform((60, 40), **of()), math.sqrt(6 / 100)),
        (lambda: init.xavier_uniform((2400,), 40, 60, **of()), math.sqrt(6 / 100)),
        (lambda: init.xavier_uniform((30, 20, 3, 2), **of()), math.sqrt(6 / 300)),
        (lambda: init.kaiming_uniform((60, 40), **of()), math.sqrt(6 / 40)),
        (lambda: init.kaiming_uniform((60, 40), a=math.sqrt(5), **of()), 1 / math.sqrt(40)),
        (lambda: init.kaiming_uniform((2400,), 16, **of()), math.sqrt(6 / 16)),
        (lambda: init.uniform((50, 50), -0.5, 0.5, **of()), 0.5),
        (lambda: init.uniform_bias(25, (2500,), **of()), 0.2),
    ],
    ids=[
        "xavier",
        "xavier fans",
        "xavier conv",
        "kaiming",
        "kaiming a",
        "kaiming fan",
        "uniform",
        "bias",
    ],
)
def test_uniform_values_fill_their_bounds(make, bound):
    values = make()
    assert values.abs().max() <= bound
    assert values.abs().max() > 0.99 * bound
    assert abs(values.mean()) < 0.05 * bound
    assert values.var().item() == pytest.approx(bound**2 / 3, rel=0.06)


@pytest.mark.parametrize(
    ("make", "std"),
    [
        (lambda: init.xavier_normal((60, 40), **of()), math.sqrt(2 / 100)),
        (lambda: init.kaiming_normal((60, 40), **of()), math.sqrt(2 / 40)),
        (lambda: init.kaiming_normal((60, 40), a=1.0, **of()), math.sqrt(1 / 40)),
        (lambda: init.normal((60, 40), 0.0, 3.0, **of()), 3.0),
    ],
    ids=["xavier", "kaiming", "kaiming a", "normal"],
)
def test_normal_values_have_their_deviation(make, std):
    values = make()
    assert abs(values.mean()) < 0.1 * std
    assert values.std().item() == pytest.approx(std, rel=0.05)
    assert (values.abs() > 2 * std).double().mean().item() == pytest.approx(0.0455, abs=0.015)


def test_truncation_counts_in_standard_deviations_and_draws_again():
    values = init.trunc_normal((5000,), 1.0, 0.5, -1.0, 2.0, **of())
    assert values.min() >= 0.5
    assert values.max() <= 2.0
    # Clamping would pile values up at the bounds.
    assert (values == 0.5).sum() == 0
    assert values.min() < 0.51


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (4, 2, 3)], ids=str)
def test_orthogonal_matrices_are_orthogonal_times_gain(shape):
    matrix = init.orthogonal(shape, 2.0, **of()).flatten(1)
    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    expected = 4.0 * torch.eye(small.shape[0], dtype=torch.float64)
    torch.testing.assert_close(small @ small.T, expected, rtol=0, atol=1e-12)


def test_a_new_tensor_is_returned_where_it_was_asked_for():
    first = init.kaiming_uniform((3, 2), generator=torch.Generator().manual_seed(1))
    again = init.kaiming_uniform((3, 2), generator=torch.Generator().manual_seed(1))
    assert torch.equal(first, again)
    assert first.dtype == torch.float32
    assert not first.requires_grad
    assert init.uniform((2,), 0.0, 1.0, device="meta").is_meta
    assert init.uniform((2,), 0.0, 1.0, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_torchs_in_place_forms_are_torchs():
    assert init.xavier_uniform_ is torch.nn.init.xavier_uniform_
    assert init.calculate_gain is torch.nn.init.calculate_gain
    assert "kaiming_normal_" in dir(init)
    with pytest.raises(AttributeError):
        init.no_such_initializer  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (init.orthogonal, ((3,),), "two dimensions"),
        (init.xavier_uniform, ((3,),), "fan_in="),
        (init.kaiming_normal, ((3,),), "fan_in="),
        (init.kaiming_uniform, ((3, 0),), "fan_in=0"),
        (init.uniform_bias, (0, (3,)), "fan_in=0"),
        (init.uniform, ((3,), 1.0, 0.0), "low must not be above high"),
        (init.normal, ((3,), 0.0, -1.0), "std=-1.0"),
        (init.trunc_normal, ((3,), 0.0, 1.0, 2.0, 1.0), "a must be below b"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_impossible_requests_are_refused(call, arguments, message):
    with pytest.raises(ValueError, match=message):
        call(*arguments)
