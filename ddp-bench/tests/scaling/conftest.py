"""Made-up runs for the tests of the scaling suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ddp_bench.scaling.bars import judge
from ddp_bench.scaling.measure import RankFigures, RunFigures
from ddp_bench.scaling.suite import SuiteResult
from ddp_bench.scaling.table import Table


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


def rank(**changes: Any) -> RankFigures:
    fields: dict[str, Any] = {
        "steps": 100,
        "busy": 0.95,
        "steady_busy": 0.95,
        "pace": 1.0,
        "step_ms": 20.0,
    }
    return RankFigures(**{**fields, **changes})


@pytest.fixture
def make_run() -> Callable[..., RunFigures]:
    """Return a maker of sound runs; keywords replace fields."""

    def make(arm: str, time_to_loss: float | None = 5.0, **changes: Any) -> RunFigures:
        is_ours = arm.startswith(("gloo", "cpu"))
        fields: dict[str, Any] = {
            "arm": arm,
            "scenario": "slow",
            "seed": 42,
            "period": 0,
            "run_s": 20.0,
            "wanted_factor": 2.5,
            "curve": [(1.0, 0.9), (2.0, 0.3)],
            "time_to_loss": time_to_loss,
            "samples_per_s": 2000.0,
            "ranks": [rank(), rank(step_ms=50.0)],
            "payload_bytes": 10**6,
            "windows": 20 if is_ours else None,
            "overhead": 0.02 if is_ours else None,
            "is_exact": True if is_ours else None,
        }
        return RunFigures(**{**fields, **changes})

    return make


def make_result(runs: list[RunFigures]) -> SuiteResult:
    return SuiteResult(
        environment={
            "cpu": "a processor",
            "torch": "2.15.0",
            "python": "3.11.7",
            "commit": "abc",
            "dirty": False,
        },
        model="mlp",
        base_ms=20.0,
        rest_ms=2.5,
        solo_s=7.4,
        epoch_batches=62,
        targets={42: 0.3},
        skipped={"torchft-diloco": "torchft does not load: No module named 'torchft'"},
        repeated=0,
        runs=tuple(runs),
        verdicts=tuple(judge(Table(run for run in runs if run.arm != "solo"))),
    )


@pytest.fixture
def result(make_run: Callable[..., RunFigures]) -> SuiteResult:
    """Return a result with a run alone, a missed loss and a missed bar."""
    return make_result(
        [
            make_run("solo", None, scenario="solo"),
            make_run("torch-ddp", None),
            make_run("gloo-cadence", 5.0, samples_per_s=2100.0),
        ]
    )
