from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError
from flodl.data.partition import (
    Lease,
    Split,
    apportion,
    check_ranges,
    chunk_sizes,
    cut,
    joined,
    length,
    select,
    split_of,
    subtract,
)


def covered(ranges: Any) -> list[int]:
    return [position for start, stop in ranges for position in range(start, stop)]


@st.composite
def disjoint(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    ends = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=8)))
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    return tuple(draw(st.permutations(pairs)))


@given(ranges=disjoint(), first=st.integers(0, 60), count=st.integers(0, 60))
def test_cut_is_a_slice_of_the_concatenation(ranges: Any, first: int, count: int) -> None:
    assert covered(cut(ranges, first, first + count)) == covered(ranges)[first : first + count]
    assert length(ranges) == len(covered(ranges))


@given(ranges=disjoint(), taken=disjoint())
def test_subtract_leaves_the_other_positions_in_ascending_order(ranges: Any, taken: Any) -> None:
    assert covered(subtract(ranges, taken)) == sorted(set(covered(ranges)) - set(covered(taken)))


def test_neighbors_are_joined_and_positions_selected() -> None:
    assert joined([(0, 2), (2, 5), (6, 7)]) == ((0, 5), (6, 7))
    order = torch.arange(10) * 10
    assert select(order, ((8, 10), (0, 1))).tolist() == [80, 90, 0]
    assert select(order, ((0, 10),)) is order
    assert select(order, ()).tolist() == []


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ([(3, 3)], r"range \[3, 3\): expected 0 <= start < stop"),
        ([(-1, 3)], "expected 0 <= start"),
        ([(1, 4), (3, 6)], "overlap at position 3"),
        ([(1, 2, 3)], r"range \(1, 2, 3\): expected \(start, stop\)"),
        ([(1.5, 2)], r"expected \(start, stop\)"),
    ],
)
def test_ranges_that_are_none_are_refused(ranges: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_ranges(ranges)
    with pytest.raises(ConfigError, match=says):
        Lease(lease_id=1, epoch=0, ranges=ranges)


WORLDS = st.integers(1, 9)


@st.composite
def splits(draw: st.DrawFn) -> tuple[int, Any, Any]:
    world = draw(WORLDS)
    shares = draw(
        st.none() | st.tuples(*[st.floats(0.01, 10, allow_nan=False) for _ in range(world)])
    )
    uneven = draw(st.sampled_from(["drop", "allow"] if shares else ["drop", "allow", "pad"]))
    return world, shares, uneven


@given(
    split=splits(),
    pending=disjoint(),
    batch_size=st.integers(1, 20),
    drop_last=st.booleans(),
)
def test_parts_are_disjoint_and_cover_what_is_pending_but_for_the_stated_tail(
    split: Any, pending: Any, batch_size: int, drop_last: bool
) -> None:
    world, shares, uneven = split
    parts = [
        covered(
            Split(rank=rank, world_size=world, shares=shares, uneven=uneven).ranges(
                pending, batch_size=batch_size, drop_last=drop_last
            )
        )
        for rank in range(world)
    ]
    everything = [position for part in parts for position in part]
    assert set(everything) <= set(covered(pending))
    if uneven != "pad":
        assert len(everything) == len(set(everything))
    lost = length(pending) - len(set(everything))
    unit = batch_size if drop_last else 1
    if world == 1 or uneven in {"allow", "pad"}:
        assert lost == 0
    elif shares is None:
        assert lost < world * unit
    else:
        assert lost < unit
    if shares is None and uneven != "allow":
        assert len({len(part) for part in parts}) == 1
    if shares is None:
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_padding_goes_round_as_often_as_it_must() -> None:
    def part(rank: int) -> list[int]:
        split = Split(rank=rank, world_size=5, uneven="pad")
        return covered(split.ranges(((0, 2),), batch_size=1, drop_last=False))

    assert [part(rank) for rank in range(5)] == [[0], [1], [0], [1], [0]]
    big = Split(rank=0, world_size=2, uneven="pad")
    assert covered(big.ranges(((3, 5),), batch_size=4, drop_last=True)) == [3, 4, 3, 4]
    assert big.ranges((), batch_size=4, drop_last=True) == ()


@given(count=st.integers(0, 10_000), shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_shares_add_up_and_only_the_largest_gets_more_than_its_floor(
    count: int, shares: list[float]
) -> None:
    sizes = apportion(count, shares)
    assert sum(sizes) == count
    exact = [count * share / sum(shares) for share in shares]
    largest = shares.index(max(shares))
    for rank, size in enumerate(sizes):
        if rank != largest:
            assert exact[rank] - 1 - 1e-6 <= size <= exact[rank] + 1e-6
    assert apportion(10, [1, 2, 2]) == [2, 4, 4]
    assert apportion(11, [1, 2, 2]) == [2, 5, 4]


@given(st.integers(1, 64), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_chunks_of_a_batch_add_up_and_none_is_empty(rows: int, weights: list[int]) -> None:
    ratios = [weight / sum(weights) for weight in weights]
    if rows < len(ratios):
        with pytest.raises(ConfigError, match="expected a row or more for each"):
            chunk_sizes(rows, ratios)
        return
    sizes = chunk_sizes(rows, ratios)
    assert sum(sizes) == rows
    assert min(sizes) >= 1


def test_chunks_round_half_up_and_the_last_takes_the_rest() -> None:
    assert chunk_sizes(10, [0.25, 0.75]) == [3, 7]
    assert chunk_sizes(4, [0.97, 0.01, 0.01, 0.01]) == [1, 1, 1, 1]
    with pytest.raises(ConfigError, match="the sum 1"):
        chunk_sizes(10, [0.5, 0.6])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"world_size": 0}, "world_size=0"),
        ({"rank": 2, "world_size": 2}, "rank=2: expected a whole number of at least 0 and below 2"),
        ({"uneven": "keep"}, 'uneven=\'keep\': expected "drop", "pad" or "allow"'),
        ({"world_size": 2, "shares": (1.0,)}, "expected a positive number for each of the 2 ranks"),
        ({"world_size": 2, "shares": (1.0, 0.0)}, "expected a positive number"),
        ({"world_size": 2, "shares": (1.0, float("nan"))}, "expected a positive number"),
        ({"world_size": 2, "shares": (1.0, 2.0), "uneven": "pad"}, "need no padding"),
    ],
)
def test_splits_that_are_none_are_refused(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Split(**options)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "3"}, (1, 3)),
        ({"SLURM_NTASKS": "3"}, None),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "3"}, (0, 2)),
    ],
)
def test_launchers_say_which_rank_this_is(environ: Any, found: Any) -> None:
    split = split_of(environ)
    assert (split and (split.rank, split.world_size)) == found


@pytest.mark.parametrize(
    "environ", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}]
)
def test_launchers_that_make_no_sense_are_refused(environ: Any) -> None:
    with pytest.raises(ConfigError, match="RANK='x'|rank=2"):
        split_of(environ)
