from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ddp_bench.scaling.bars import Verdict, judge
from ddp_bench.scaling.measure import RunFigures
from ddp_bench.scaling.table import Table

Make = Callable[..., RunFigures]
SEEDS = (42, 43, 44)


def each_seed(make: Make, arm: str, times: Sequence[float | None], **changes: Any) -> list[Any]:
    return [make(arm, time, seed=seed, **changes) for seed, time in zip(SEEDS, times, strict=True)]


def verdict(runs: list[RunFigures], bar: str) -> Verdict:
    (found,) = [each for each in judge(Table(runs)) if each.bar == bar]
    return found


def test_time_to_loss_is_judged_by_medians_over_the_seeds(make_run: Make) -> None:
    reference = each_seed(make_run, "torch-ddp", (10.0, 10.0, 12.0))
    bar = "time to loss, gloo-cadence / torch-ddp"
    good = verdict([*reference, *each_seed(make_run, "gloo-cadence", (7.0, 7.5, 9.0))], bar)
    assert good.found.value == pytest.approx(0.75)
    assert good.found.low <= 0.75 <= good.found.high
    assert good.holds
    bad = verdict([*reference, *each_seed(make_run, "gloo-cadence", (7.0, 7.6, 9.0))], bar)
    assert not bad.holds


def test_a_loss_that_we_miss_fails_and_one_that_they_miss_counts_as_their_whole_run(
    make_run: Make,
) -> None:
    bar = "time to loss, cpu-async / torch-ddp"
    missed = verdict([make_run("torch-ddp", 10.0), make_run("cpu-async", None)], bar)
    assert not missed.holds
    slow = verdict([make_run("torch-ddp", None), make_run("cpu-async", 10.0)], bar)
    assert slow.found.value == pytest.approx(0.5)


def test_throughput_is_a_part_of_what_unequal_shares_allow(make_run: Make) -> None:
    bar = "throughput over torch-ddp, part of the ideal gain, gloo-cadence"
    runs = [
        make_run("torch-ddp", samples_per_s=2000.0),
        make_run("gloo-cadence", 3.0, samples_per_s=3160.0),
    ]
    found = verdict(runs, bar)
    assert found.found.value == pytest.approx(3160 / 3500)
    assert found.holds
    runs[1] = make_run("gloo-cadence", 3.0, samples_per_s=3140.0)
    assert not verdict(runs, bar).holds


def test_with_equal_ranks_sync_and_cadence_are_held_to_torch(make_run: Make) -> None:
    runs = [
        make_run("torch-ddp", 10.0, scenario="equal"),
        make_run("gloo-sync", 10.5, scenario="equal"),
        make_run("cpu-cadence", 10.6, scenario="equal"),
    ]
    assert verdict(runs, "time to loss, gloo-sync / torch-ddp").holds
    assert not verdict(runs, "time to loss, cpu-cadence / torch-ddp").holds


def test_the_other_competitors_have_bars_where_they_ran(make_run: Make) -> None:
    runs = [
        make_run("torch-ddp", 10.0),
        make_run("torchft-localsgd", 8.0, period=8),
        make_run("torchft-diloco", 10.0, period=32),
        make_run("cpu-cadence", 7.0),
        make_run("cpu-async-diloco", 8.0),
    ]
    assert not verdict(runs, "time to loss, cpu-cadence / torchft-localsgd H=8").holds
    assert verdict(runs, "time to loss, cpu-async-diloco / torchft-diloco H=32").holds


def test_idle_overhead_accounts_and_pace_are_judged_everywhere(make_run: Make) -> None:
    run = make_run("gloo-cadence", 3.0, scenario="jitter")
    wrong = make_run(
        "gloo-cadence",
        3.0,
        scenario="jitter",
        seed=43,
        overhead=0.5,
        is_exact=False,
        ranks=[
            type(run.ranks[0])(steps=1, busy=0.5, steady_busy=0.5, pace=1.2, step_ms=20.0),
            run.ranks[1],
        ],
    )
    assert all(each.holds for each in judge(Table([run])))
    held = {each.bar: each.holds for each in judge(Table([run, wrong, wrong]))}
    assert len(held) == 4
    assert not any(held.values())


def test_shares_after_a_change_are_held_to_the_ideal(make_run: Make) -> None:
    bar = "share after five averages, off the ideal, cpu-cadence"
    options = {"scenario": "change", "wanted_factor": 3.0}
    good = make_run("cpu-cadence", 3.0, shares_after=0.27, **options)
    assert verdict([good], bar).holds
    assert not verdict([make_run("cpu-cadence", 3.0, shares_after=0.30, **options)], bar).holds


def test_a_stall_must_not_cost_what_it_costs_torch(make_run: Make) -> None:
    runs = [
        make_run("torch-ddp", 10.0, scenario="stall"),
        make_run("cpu-async", 9.5, scenario="stall"),
    ]
    assert not verdict(runs, "time to loss, cpu-async / torch-ddp").holds
