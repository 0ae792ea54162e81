import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.distributed.controller.leasing import (
    Demand,
    Horizon,
    epoch_shares,
    is_better_left,
    lease_batches,
    level_shares,
)


def demand(**options):
    return Demand(
        **{"remaining": 1000, "world": 2, "epoch": 1000, "count": 10, "total": 33} | options
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"count": None}, 50),  # a tenth of an equal share
        ({"count": None, "epoch": 40, "remaining": 40}, 4),  # at least four
        ({}, 20),  # two windows of the rank
        ({"count": 23}, 46),
        ({"remaining": 60, "catch_up": None}, 19),  # its share of what remains
        ({"remaining": 30, "catch_up": 7}, 7),  # the tail: no longer than the others
        ({"remaining": 30, "catch_up": 0}, 1),  # and yet something
        ({"remaining": 3, "catch_up": 9}, 3),  # never more than there is
        ({"remaining": 30, "catch_up": None}, 10),
    ],
)
def test_leases_shrink_towards_the_end(options, expected):
    assert lease_batches(demand(**options)) == expected


@given(
    st.integers(1, 10**6),
    st.integers(1, 1000),
    st.none() | st.integers(1, 1000),
    st.none() | st.integers(0, 10**6),
)
def test_a_lease_is_never_empty_and_never_more_than_remains(remaining, world, count, catch_up):
    size = lease_batches(
        Demand(
            remaining=remaining,
            world=world,
            epoch=remaining,
            count=count,
            total=(count or 1) * world,
            catch_up=catch_up,
        )
    )
    assert 1 <= size <= remaining


def test_an_epoch_is_split_by_ratio_speed_or_equally():
    assert epoch_shares(900, 3, (3, 2, 1), ()) == [450, 300, 150]
    assert epoch_shares(100, 2, None, (10.0, 30.0)) == [75, 25]
    assert epoch_shares(100, 3, None, (10.0, None, 5.0)) == [34, 33, 33]
    assert epoch_shares(100, 3, None, ()) == [34, 33, 33]


@given(st.integers(0, 200), st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_returned_work_levels_what_ranks_hold(batches, held):
    shares = level_shares(batches, held)
    assert sum(shares) == batches
    after = [count + share for count, share in zip(held, shares, strict=True)]
    given_to = [total for total, share in zip(after, shares, strict=True) if share]
    if given_to:
        assert max(given_to) - min(after) <= 1


def test_the_horizon_tells_when_the_last_other_rank_is_done():
    horizon = Horizon()
    assert horizon.latest_other("a") is None
    horizon.add("a", 5.0, 10.0)
    horizon.add("b", 2.0, 10.0)
    assert horizon.latest_other("a") == 12.0
    assert horizon.latest_other("b") == 15.0
    horizon.add("b", 9.0, 11.0)
    assert horizon.latest_other("a") == 21.0
    horizon.forget("b")
    assert horizon.latest_other("a") is None
    assert horizon.latest_other("b") == 15.0


def test_a_slow_member_leaves_the_last_batches_to_one_that_is_done_with_them_sooner():
    fast = (10.0, 0.020)
    assert is_better_left(10.050, 2, [fast])
    assert not is_better_left(10.050, 3, [fast])
    assert not is_better_left(10.050, 1, [(10.040, 0.020)])
    assert not is_better_left(10.050, 1, [])


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 100)), min_size=1, max_size=8),
    st.integers(1, 50),
)
def test_the_member_that_would_be_done_first_always_gets_work(members, free):
    refused = [
        is_better_left(ends + each, free, members[:number] + members[number + 1 :])
        for number, (ends, each) in enumerate(members)
    ]
    first = min(range(len(members)), key=lambda number: sum(members[number]))
    assert not refused[first]
