import math

import pytest

from ddp_bench.statistics import (
    Ratio,
    geometric_mean,
    mean_ratio_of,
    ratio_of,
    scaled_mad,
)


def test_spread_of_known_values():
    # median 3, distances 2 1 0 1 97: their median is 1
    assert scaled_mad([1, 2, 3, 4, 100]) == pytest.approx(1.4826)
    assert scaled_mad([5.0]) == 0


def test_ratio_is_that_of_the_medians_and_lies_in_its_interval():
    ratio = ratio_of([10, 11, 30], [20, 22, 21])
    assert ratio.value == pytest.approx(11 / 21)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio == ratio_of([10, 11, 30], [20, 22, 21])


def test_interval_of_equal_rounds_is_the_ratio_itself():
    assert ratio_of([2.0] * 5, [4.0] * 5) == Ratio(value=0.5, low=0.5, high=0.5)


def test_noise_that_both_sides_share_leaves_the_interval_narrow():
    noise = [1.0, 1.5, 0.8, 1.2, 2.0]
    ratio = ratio_of([0.5 * n for n in noise], noise)
    assert (ratio.low, ratio.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_interval_covers_the_extremes_of_few_rounds():
    ratio = ratio_of([1.0, 2.0], [1.0, 1.0])
    assert (ratio.low, ratio.high) == (1.0, 2.0)


def test_one_round_has_no_interval():
    assert ratio_of([3.0], [2.0]) == Ratio(value=1.5, low=1.5, high=1.5)


@pytest.mark.parametrize(
    ("value", "low", "high", "is_tie"),
    [(1.1, 0.9, 1.3, True), (1.01, 1.005, 1.02, True), (1.1, 1.05, 1.2, False)],
)
def test_tie_is_an_interval_around_one_or_less_than_two_percent(value, low, high, is_tie):
    assert Ratio(value=value, low=low, high=high).is_tie is is_tie


def test_geometric_mean_of_two():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_mean_of_ratios_is_narrower_than_its_parts():
    pairs = [([1.0, 1.2, 1.1], [2.0, 2.0, 2.0])] * 4
    one, mean = ratio_of(*pairs[0]), mean_ratio_of(pairs)
    assert mean.value == pytest.approx(one.value)
    assert math.log(mean.high / mean.value) == pytest.approx(math.log(one.high / one.value) / 2)
