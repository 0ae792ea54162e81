import dataclasses
import math
import subprocess
import sys
import time

import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig
from flodl.testing.des import ReduceCost, Scenario, simulate, sync_efficiency

THREE = (40.0, 100.0, 110.0)


def test_three_unequal_ranks_lose_little_where_sync_loses_half():
    scenario = Scenario(ranks=3, batch_ms=THREE)
    result = simulate(scenario)
    assert result.is_exact
    assert result.efficiency >= 0.94
    assert result.batches == 6000
    assert sync_efficiency(scenario) == pytest.approx(0.57, abs=0.03)
    fast, slow, slowest = result.rank_steps
    assert fast / slowest == pytest.approx(110 / 40, rel=0.05)
    assert slow / slowest == pytest.approx(110 / 100, rel=0.05)


def test_short_epochs_end_without_a_slow_rank_that_takes_the_last_batch():
    scenario = Scenario(
        ranks=2, batches_per_rank=31 * 14, epochs=14, batch_ms=(20.0, 50.0), jitter=0.0
    )
    result = simulate(scenario)
    assert result.is_exact
    assert result.efficiency >= 0.93
    fast, slow = result.rank_steps
    assert fast / slow == pytest.approx(2.5, rel=0.06)


@pytest.mark.parametrize(("ranks", "least"), [(2, 0.94), (8, 0.92), (64, 0.90)])
def test_cadence_keeps_its_efficiency_as_ranks_are_added(ranks, least):
    scenario = Scenario(ranks=ranks, batches_per_rank=1000)
    result = simulate(scenario)
    assert result.is_exact
    assert result.efficiency >= max(least, sync_efficiency(scenario))


def test_the_same_seed_gives_the_same_run_and_another_one_does_not():
    scenario = Scenario(ranks=16, batches_per_rank=100, deaths=3, epochs=2)
    first = simulate(scenario)
    assert simulate(scenario).digest() == first.digest()
    assert simulate(dataclasses.replace(scenario, seed=1)).digest() != first.digest()


@pytest.mark.parametrize("seed", range(5))
def test_all_work_is_committed_whoever_dies(seed):
    result = simulate(Scenario(ranks=24, batches_per_rank=150, deaths=8, epochs=3, seed=seed))
    assert result.is_exact
    assert result.batches == 24 * 150
    assert result.deaths == 8
    assert result.longest_recovery <= 1.0


def test_a_rank_that_is_throttled_gets_less_work_from_then_on():
    result = simulate(Scenario(ranks=3, batches_per_rank=600, profile="equal", throttle_at=0.3))
    assert result.efficiency >= 0.7
    assert result.rank_steps[0] < 0.75 * result.rank_steps[1]


@pytest.mark.parametrize("profile", ["equal", "lognormal", "two_classes", "straggler"])
def test_every_profile_ends_with_exact_accounts(profile):
    result = simulate(Scenario(ranks=16, batches_per_rank=400, profile=profile))
    assert result.is_exact
    assert 0 < result.efficiency <= 1
    assert 0 <= result.idle < 0.5


def test_sync_mode_runs_the_same_controller():
    scenario = Scenario(ranks=8, batches_per_rank=100, config=ElCheConfig.cpu_sync())
    result = simulate(scenario)
    assert result.is_exact
    assert result.windows == 100
    assert result.efficiency == pytest.approx(sync_efficiency(scenario), abs=0.03)


def test_costs_of_an_average_follow_their_formulas():
    size, rate, delay = 1e6, 1e9, 1e-4
    costs = {
        travel: ReduceCost(travel=travel, payload_bytes=10**6, bandwidth=rate, latency=delay)
        for travel in ("measured", "ring", "star", "relay")
    }
    world, hosts = 16, 2
    assert costs["measured"].seconds(world, hosts) == pytest.approx(0.010)
    assert costs["ring"].seconds(world, hosts) == pytest.approx(
        2 * 15 / 16 * size / rate + 30 * delay
    )
    assert costs["star"].seconds(world, hosts) == pytest.approx(32 * size / rate + 2 * delay)
    assert costs["relay"].seconds(world, hosts) == pytest.approx(4 * size / rate + 4 * delay)
    bytes_of = {travel: cost.controller_bytes(world, hosts) for travel, cost in costs.items()}
    assert bytes_of["relay"] / bytes_of["star"] == hosts / world
    half = dataclasses.replace(costs["star"], is_bf16=True)
    assert half.controller_bytes(world, hosts) == bytes_of["star"] / 2


def test_control_traffic_per_rank_does_not_grow_with_ranks():
    small, large = (simulate(Scenario(ranks=ranks, batches_per_rank=400)) for ranks in (32, 256))
    steps = math.log(large.ranks / small.ranks)
    slope = math.log(large.bytes_per_rank_second / small.bytes_per_rank_second) / steps
    assert slope <= 0.05
    assert large.bytes_per_rank_second <= 2048
    assert large.state_bytes_per_rank <= 64 << 10


@pytest.mark.parametrize(
    "options",
    [
        {"ranks": 0},
        {"ranks": 4, "deaths": 4},
        {"base_ms": 0},
        {"ranks": 2, "batch_ms": (1.0,)},
        {"config": ElCheConfig.cpu_async()},
        {"config": ElCheConfig.nccl_sync()},
    ],
)
def test_scenarios_that_mean_nothing_are_refused(options):
    with pytest.raises(ConfigError):
        Scenario(**options)


def test_the_simulator_loads_no_torch():
    code = "import sys, flodl.testing.des; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_ranks_keep_close_to_the_sum_of_their_speeds(seed):
    scenario = Scenario(ranks=1000, batches_per_rank=2000, seed=seed)
    start = time.process_time()
    result = simulate(scenario)
    assert time.process_time() - start < 120
    assert (result.batches, result.is_exact) == (2_000_000, True)
    assert result.efficiency >= max(0.88, sync_efficiency(scenario))
    assert result.controller.seconds <= result.seconds


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_of_a_thousand_ranks_die_and_all_work_is_committed(seed):
    result = simulate(Scenario(ranks=1000, batches_per_rank=2000, deaths=100, seed=seed))
    assert (result.batches, result.deaths, result.is_exact) == (2_000_000, 100, True)
    assert result.efficiency >= 0.78
    assert result.longest_recovery <= 1.0
    assert result.controller.seconds <= result.seconds
