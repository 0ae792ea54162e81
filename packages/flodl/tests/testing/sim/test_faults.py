"""Faults on cue, and ranks that are slow by plan."""

import threading

import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.launch.threads.link import Killed
from flodl.testing.sim import Fault
from flodl.testing.sim.faults import Delay, Delays, Injector

LIMIT_S = 60


def injector(*faults, happened=None):
    return Injector(1, faults, Delay(0.0), set() if happened is None else happened)


def test_a_delay_can_follow_a_profile():
    now = [100.0]
    delay = Delay(lambda seconds: 5.0 if seconds < 10 else 50.0, clock=lambda: now[0])
    taken = []
    for _ in range(4):
        taken.append(delay.next_s())
        now[0] += 6.0
    assert taken == [0.005, 0.005, 0.05, 0.05]


def test_jitter_is_of_the_seed_and_of_the_rank():
    def drawn(number, seed=1):
        delay = Delays((10.0, 10.0), jitter=0.5, seed=seed).of(number)
        return [delay.next_s() for _ in range(50)]

    first = drawn(0)
    assert drawn(0) == first
    assert first not in (drawn(1), drawn(0, seed=2))
    assert all(0.005 <= seconds <= 0.015 for seconds in first)
    assert max(first) > 0.012 > 0.008 > min(first)
    assert Delays((10.0,), jitter=0.5).of(1).next_s() == 0.0


@pytest.mark.parametrize("jitter", [-0.1, 1.5, float("nan")])
def test_jitter_beyond_the_delay_is_refused(jitter):
    with pytest.raises(ConfigError, match="jitter="):
        Delay(1.0, jitter=jitter)


@pytest.mark.parametrize("options", [{"at": "nowhere:1"}, {"at": "step:x"}, {"kind": "flood"}])
def test_faults_that_there_are_not_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        Fault(**{"rank": 0, "at": "step:1"} | options)


def test_a_fault_happens_once_at_its_point_to_its_rank():
    fault, happened = Fault(rank=1, at="step:2", kind="nan"), set()
    rank = injector(fault, Fault(rank=0, at="step:1"), happened=happened)
    assert [rank.step() for _ in range(3)] == [None, fault, None]
    again = injector(fault, happened=happened)  # its next process
    assert [again.step() for _ in range(3)] == [None] * 3


def test_a_killed_rank_reaches_nothing_more():
    rank = injector(Fault(rank=1, at="barrier:2"))
    assert rank.reach("barrier:1") is None
    for _ in range(2):
        with pytest.raises(Killed):
            rank.reach("barrier:2")


def test_a_rank_that_is_stopped_for_a_while_goes_on():
    rank = injector(Fault(rank=1, at="step:1", kind="stop", seconds=0.01))
    assert rank.step() is not None
    assert not rank.frozen.is_set()
    assert not rank.is_killed


def test_a_rank_that_is_stopped_for_good_is_frozen_until_it_is_killed():
    rank, ends = injector(Fault(rank=1, at="step:1", kind="stop")), []

    def body():
        try:
            rank.step()
        except Killed:
            ends.append("killed")

    thread = threading.Thread(target=body)
    thread.start()
    assert rank.frozen.wait(LIMIT_S)
    rank.kill()
    thread.join(LIMIT_S)
    assert ends == ["killed"]
