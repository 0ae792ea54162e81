import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError
from flodl.distributed.elche.weights import LrRamp, lr_scale, weights


@pytest.mark.parametrize(("gamma", "first"), [(0, 0.5), (0.5, 0.60263), (1, 0.69697), (2, 0.84102)])
def test_gamma_says_how_much_work_counts(gamma, first):
    assert weights([23, 10], gamma)[0] == pytest.approx(first, abs=5e-6)


def test_a_rank_without_samples_counts_nothing_at_any_gamma():
    assert weights([5, 0], 0) == [1.0, 0.0]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50), st.floats(0, 3))
def test_weights_are_shares_of_one(samples, gamma):
    if not any(samples):
        with pytest.raises(ConfigError, match="no rank has any"):
            weights(samples, gamma)
        return
    found = weights(samples, gamma)
    assert sum(found) == pytest.approx(1)
    assert all((weight > 0) == (n > 0) for weight, n in zip(found, samples, strict=True))


@pytest.mark.parametrize(("ratio", "expected"), [(1, 2.0), (0.5, 1.5), (0, 1.0)])
def test_learning_rate_follows_the_world(ratio, expected):
    assert lr_scale(2, ratio) == expected


def test_a_change_of_the_world_ramps_over_five_windows():
    ramp = LrRamp(ratio=1.0)
    ramp.begin(4)
    assert ramp.value == 4
    ramp.change(2)
    seen = []
    for _ in range(6):
        seen.append(ramp.value)
        ramp.advance()
    assert seen == pytest.approx([4, 3.6, 3.2, 2.8, 2.4, 2])


def test_a_change_within_a_ramp_starts_where_it_stands():
    ramp = LrRamp(ratio=1.0)
    ramp.begin(4)
    ramp.change(2)
    ramp.advance()
    ramp.change(4)
    assert ramp.value == pytest.approx(3.6)
