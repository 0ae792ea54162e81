from __future__ import annotations

from typing import Any

import pytest

from ddp_bench.errors import UsageError
from ddp_bench.scaling.slow import STALL_S, Paced, Pacer, SlowRank


class Clock:
    """Time that passes only where a test or a sleep says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pacer(slow: SlowRank, rank: int, clock: Clock, **options: Any) -> Pacer:
    fields: dict[str, Any] = {"base_s": 0.020, "rest_s": 0.003, **options}
    return Pacer(slow, rank, clock=clock, sleep=clock.sleep, **fields)


def step(paced_by: Pacer, clock: Clock, work_s: float = 0.002) -> Paced:
    """Take a step: forward pass, sleep, and a rest as long as was planned."""
    paced_by.begin()
    clock.sleep(work_s)
    paced = paced_by.pad()
    clock.sleep(0.003)
    return paced


@pytest.mark.parametrize(("rank", "lasts"), [(0, 0.020), (1, 0.050)])
def test_a_step_lasts_its_base_times_the_factor_with_the_rest_inside(
    rank: int, lasts: float
) -> None:
    clock = Clock()
    paced = step(pacer(SlowRank(factor=2.5), rank, clock), clock)
    assert clock.now - 100.0 == pytest.approx(lasts)
    assert paced.wanted == pytest.approx(lasts)
    assert paced.padded - paced.started == pytest.approx(lasts - 0.003)


def test_a_step_that_is_late_by_itself_does_not_sleep() -> None:
    clock = Clock()
    paced = step(pacer(SlowRank(), 0, clock), clock, work_s=0.030)
    assert paced.padded - paced.started == pytest.approx(0.030)


def test_the_speed_changes_at_half_time() -> None:
    clock = Clock()
    paced_by = pacer(SlowRank(factor=3.0, pattern="change", half_s=1.0), 1, clock)
    wanted = [step(paced_by, clock).wanted for _ in range(70)]
    assert wanted[:50] == pytest.approx([0.020] * 50)
    assert wanted[51:] == pytest.approx([0.060] * 19)


def test_jitter_is_seeded_and_stays_within_half_of_the_factor() -> None:
    def run(seed: int) -> list[float]:
        clock = Clock()
        paced_by = pacer(SlowRank(factor=2.0, pattern="jitter"), 1, clock, seed=seed)
        return [step(paced_by, clock).wanted for _ in range(200)]

    first = run(1)
    assert run(1) == first
    assert run(2) != first
    assert 0.020 <= min(first) < 0.025
    assert 0.055 < max(first) <= 0.060


def test_a_stall_comes_once_in_half_a_minute() -> None:
    clock = Clock()
    paced_by = pacer(SlowRank(pattern="stall"), 1, clock)
    stalls = []
    while clock.now < 170.0:
        paced = step(paced_by, clock)
        if paced.wanted > STALL_S:
            stalls.append(round(paced.started - 100.0))
    assert stalls == [5, 35, 65]


def test_the_other_rank_is_never_slow() -> None:
    clock = Clock()
    for pattern in ("change", "jitter", "stall"):
        paced_by = pacer(SlowRank(factor=4.0, pattern=pattern), 0, clock)
        assert {step(paced_by, clock).wanted for _ in range(300)} == {0.020}


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"factor 0\.5"):
        SlowRank(factor=0.5)
