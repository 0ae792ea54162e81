from __future__ import annotations

import pytest

from flodl.data.prefetch import PrefetchDepth, fitting_depth
from flodl.device import MemoryInfo

GIB = 1 << 30


def memory(*, total: int = 100, free: int, reserved: int = 0, allocated: int = 0) -> MemoryInfo:
    return MemoryInfo(
        total=total * GIB,
        free=free * GIB,
        used=(total - free) * GIB,
        reserved=reserved * GIB,
        allocated=allocated * GIB,
    )


@pytest.mark.parametrize(
    ("found", "reserve", "batches", "depth"),
    [
        (memory(free=60), 0, 1000, 50),  # 90 - 40 used
        (memory(free=60), 20, 1000, 30),
        (memory(free=60), 20, 12, 12),
        (memory(free=60, reserved=10, allocated=4), 0, 1000, 56),  # 6 cached are no use
        (memory(free=5), 0, 1000, 2),
        (memory(free=60), 500, 1000, 2),
        (memory(free=60), 0, 0, 2),
    ],
)
def test_the_depth_is_what_the_cap_leaves_within_two_and_an_epoch(
    found: MemoryInfo, reserve: int, batches: int, depth: int
) -> None:
    assert (
        fitting_depth(found, cap=0.9, reserve=reserve * GIB, batch_bytes=GIB, num_batches=batches)
        == depth
    )


def test_batches_of_unknown_size_are_loaded_two_ahead() -> None:
    assert fitting_depth(memory(free=60), cap=0.9, reserve=0, batch_bytes=0, num_batches=9) == 2


def test_a_measured_depth_starts_small_until_the_third_batch_is_asked_for() -> None:
    depth = PrefetchDepth(None, iter([30, 20]).__next__, 2)
    assert [depth.depth, depth.begin_epoch()] == [4, 4]
    seen = []
    for _ in range(5):
        depth.asked()
        seen.append(depth.depth)
    assert seen == [4, 4, 30, 30, 30]
    assert depth.begin_epoch() == 20


def test_a_depth_that_was_given_is_never_measured() -> None:
    depth = PrefetchDepth(3, lambda: 1 // 0, 2)
    for _ in range(5):
        depth.asked()
    assert depth.begin_epoch() == 3


def test_resize_measures_once_and_leaves_control_to_the_user() -> None:
    depth = PrefetchDepth(None, iter([7]).__next__, 2)
    assert depth.resize() == 7
    for _ in range(5):
        depth.asked()
    assert depth.begin_epoch() == 7


def test_resize_where_memory_sets_no_limit_keeps_the_depth() -> None:
    assert PrefetchDepth(None, None, 2).resize() == 2


def test_halving_stops_at_one_and_stays() -> None:
    depth = PrefetchDepth(None, lambda: 50, 2)
    assert [depth.halve(), depth.halve(), depth.halve()] == [2, 1, 1]
    for _ in range(5):
        depth.asked()
    assert depth.begin_epoch() == 1
