import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError
from flodl.distributed.elche.partition import (
    cap_total,
    clamp_total,
    equal_split,
    ratio_split,
    round_half_up,
)


@pytest.mark.parametrize(
    ("counts", "most", "expected"),
    [
        ([23, 10], 20, [14, 6]),
        ([30, 10, 10], 7, [4, 2, 1]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([100, 1, 1], 10, [8, 1, 1]),
        ([3, 4], 9, [3, 4]),
        ([3, 4], 0, [0, 0]),
    ],
)
def test_counts_are_clamped_by_largest_remainders(counts, most, expected):
    assert clamp_total(counts, most) == expected


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(0, 5000))
def test_a_clamped_sum_is_exact_and_nobody_starves_without_need(counts, most):
    clamped = clamp_total(counts, most)
    assert sum(clamped) == min(most, sum(counts))
    assert all(0 <= new <= old for new, old in zip(clamped, counts, strict=True))
    if most >= len(counts):
        assert min(clamped) >= 1


def test_halves_round_up():
    assert [round_half_up(value) for value in (0.5, 1.4, 1.5, 22.5)] == [1, 1, 2, 23]


def test_equal_parts_give_the_remainder_to_the_first():
    assert equal_split(100, 3) == [34, 33, 33]


def test_parts_by_ratio_give_the_remainder_to_the_largest():
    assert ratio_split(900, [3, 2, 1]) == [450, 300, 150]
    assert ratio_split(10, [1, 2]) == [3, 7]


@given(st.integers(0, 10**6), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=50))
def test_parts_by_ratio_add_up(total, ratios):
    parts = ratio_split(total, ratios)
    assert sum(parts) == total
    assert min(parts) >= 0


@pytest.mark.parametrize("ratios", [[], [1, 0], [1, -1], [1, float("nan")]])
def test_ratios_that_are_not_positive_are_refused(ratios):
    with pytest.raises(ConfigError, match="positive number"):
        ratio_split(10, ratios)


def test_a_cap_scales_down_and_gives_the_rest_to_the_largest():
    assert cap_total([25, 10], 30) == ([22, 8], True)
    assert cap_total([25, 10], 35) == ([25, 10], False)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 5000))
def test_a_capped_sum_keeps_to_the_cap_where_each_keeps_one(counts, most):
    capped, _ = cap_total(counts, most)
    assert sum(capped) == max(len(counts), min(most, sum(counts)))
    assert min(capped) >= 1
