from hypothesis import given
from hypothesis import strategies as st

from flodl.distributed.protocol.ranges import (
    between,
    beyond,
    complement,
    cut,
    joined,
    length,
    overlapping,
)

cuts = st.lists(st.integers(0, 60), max_size=12, unique=True).map(sorted)


def every_second(points):
    return tuple(zip(points[::2], points[1::2], strict=False))


def positions(ranges):
    return [p for start, stop in ranges for p in range(start, stop)]


@given(cuts, st.integers(0, 70), st.integers(0, 70))
def test_between_counts_from_its_first_position(points, first, end):
    ranges = every_second(points)
    wanted = [p - first for p in positions(ranges) if first <= p < end]
    assert positions(between(ranges, first, end)) == wanted
    assert positions(beyond(ranges, first)) == [p - first for p in positions(ranges) if p >= first]


@given(cuts, st.integers(0, 70), st.integers(0, 70))
def test_cut_takes_positions_of_the_concatenation(points, first, end):
    ranges = every_second(points)
    assert positions(cut(ranges, first, end)) == positions(ranges)[first:end]


@given(cuts)
def test_complement_and_ranges_make_the_whole(points):
    ranges = every_second(points)
    rest = complement(ranges, (0, 60))
    assert sorted(positions(ranges) + positions(rest)) == list(range(60))
    assert length(ranges) + length(rest) == 60


def test_neighbors_are_joined_and_overlaps_are_found():
    assert joined([(4, 6), (0, 2), (2, 4), (8, 9)]) == ((0, 6), (8, 9))
    assert overlapping([(0, 3), (2, 4)]) == (2, 4)
    assert overlapping([(0, 3), (3, 4)]) is None
