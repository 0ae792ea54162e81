from __future__ import annotations

import pytest

from ddp_bench.errors import UsageError
from ddp_bench.scaling.scenario import FLODL, PERIODIC, REFERENCE, SCENARIOS, choose


def test_the_short_run_has_the_scenarios_of_the_bars_and_the_full_one_all() -> None:
    assert [scenario.name for scenario in choose((), ci=True)] == ["equal", "slow"]
    assert choose((), ci=False) == SCENARIOS
    assert [scenario.name for scenario in choose(("stall",), ci=True)] == ["stall"]


def test_an_unknown_scenario_is_named_beside_those_there_are() -> None:
    with pytest.raises(UsageError, match="'slwo': there are equal, slow"):
        choose(("slwo",), ci=False)


def test_every_scenario_has_the_reference_and_only_arms_that_exist() -> None:
    for scenario in SCENARIOS:
        assert REFERENCE in scenario.arms
        assert set(scenario.arms) | set(scenario.ci_arms) <= {REFERENCE, *PERIODIC, *FLODL}


def test_the_change_of_speed_comes_in_the_middle_of_the_run() -> None:
    (change,) = choose(("change",), ci=False)
    run_s = change.run_s(8.0, ci=False)
    assert run_s == 24.0
    assert change.slow_rank(run_s).half_s == 12.0
