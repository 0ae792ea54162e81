import pytest

from flodl.distributed.config import STABLE, SUPPRESS_GROWTH, nudge_down
from flodl.distributed.elche import Overshoot, throttled

WORKING = {"a": True, "b": True, "c": True}


def test_a_rank_too_far_ahead_of_the_slowest_waits():
    assert throttled({"a": 5, "b": 2, "c": 4}, WORKING, 2) == {"a"}


def test_no_difference_means_lockstep():
    assert throttled({"a": 2, "b": 2, "c": 2}, WORKING, 0) == set()
    assert throttled({"a": 3, "b": 2, "c": 2}, WORKING, 0) == {"a"}


def test_a_rank_without_work_holds_nobody_back():
    assert throttled({"a": 5, "b": 0, "c": 4}, {"a": True, "b": False, "c": True}, 2) == set()
    assert throttled({"a": 5}, {}, 0) == set()


@pytest.mark.parametrize(("batches", "start", "most"), [(100, 2, 3), (300, 3, 6), (10_000, 5, 10)])
def test_overshoot_grows_with_stable_windows_up_to_the_epochs_share(batches, start, most):
    overshoot = Overshoot(epoch_batches=batches)
    assert overshoot.value == start
    for _ in range(20):
        overshoot.apply(STABLE)
    assert overshoot.value == most
    overshoot.apply(SUPPRESS_GROWTH)
    assert overshoot.value == most
    overshoot.apply(nudge_down(0.5))
    assert overshoot.value == start


def test_a_fixed_overshoot_never_moves():
    overshoot = Overshoot(epoch_batches=1000, fixed=7)
    overshoot.apply(STABLE)
    assert overshoot.value == 7
