from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from ddp_bench.errors import UsageError
from ddp_bench.scaling import suite
from ddp_bench.scaling.measure import RunFigures
from ddp_bench.scaling.scenario import choose
from ddp_bench.scaling.subject import Subject
from ddp_bench.scaling.suite import ATTEMPTS, SuiteConfig
from ddp_bench.scaling.task import Task


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., RunFigures]) -> list[Task]:
    """Tasks in the order they were run; each gives made-up figures, and torch-ddp is off pace."""
    tasks: list[Task] = []

    def figures(
        task: Task, scenario: str, subject: object, target: float | None = None
    ) -> RunFigures:
        del subject
        run = make_run(task.arm, target, scenario=scenario, seed=task.seed, period=task.period)
        if task.arm != "torch-ddp":
            return run
        late = [dataclasses.replace(each, pace=1.2) for each in run.ranks]
        return dataclasses.replace(run, ranks=late)

    monkeypatch.setattr(suite.crew, "run", tasks.append)
    monkeypatch.setattr(suite, "figures", figures)
    monkeypatch.setattr(suite._Suite, "_measured_rest", lambda _: 0.0025)
    monkeypatch.setattr(suite.torchft_arms, "missing", lambda: "torchft does not load: not there")
    return tasks


def test_each_seed_begins_alone_and_its_loss_is_what_others_are_to_reach(ran: list[Task]) -> None:
    said: list[str] = []
    config = SuiteConfig(
        scenarios=choose(("slow",), ci=False), seeds=(42, 43), arms=("cpu-async", "cpu-sync")
    )
    result = suite.run(config, said.append)
    assert [(task.arm, task.seed) for task in ran] == [
        ("solo", 42),
        ("cpu-async", 42),
        ("cpu-sync", 42),
        ("solo", 43),
        ("cpu-sync", 43),
        ("cpu-async", 43),
    ]
    assert result.epoch_batches == 62
    assert result.solo_s == pytest.approx(6 * 62 * 0.020)
    assert {task.run_s for task in ran if task.arm != "solo"} == {3 * result.solo_s}
    assert {task.rest_s for task in ran} == {0.0025}
    assert [run.time_to_loss for run in result.runs if run.arm == "cpu-async"] == list(
        result.targets.values()
    )
    assert len(said) == len(ran)
    assert result.repeated == 0


def test_arms_that_average_by_a_period_run_with_each_and_missing_ones_are_told(
    ran: list[Task],
) -> None:
    config = SuiteConfig(
        scenarios=choose(("equal",), ci=False),
        seeds=(42,),
        arms=("torch-localsgd", "torchft-diloco"),
        periods=(8, 32),
    )
    result = suite.run(config, lambda _: None)
    assert [(task.arm, task.period) for task in ran[1:]] == [
        ("torch-localsgd", 8),
        ("torch-localsgd", 32),
    ]
    assert result.skipped["torchft-diloco"] == "torchft does not load: not there"


def test_runs_off_their_pace_are_done_again_and_miss_a_bar_if_all_are(ran: list[Task]) -> None:
    config = SuiteConfig(scenarios=choose(("slow",), ci=False), seeds=(42,), arms=("torch-ddp",))
    result = suite.run(config, lambda _: None)
    assert len(ran) == 1 + ATTEMPTS
    assert result.repeated == ATTEMPTS - 1
    (missed,) = [each for each in result.verdicts if not each.holds]
    assert missed.bar == "steps off their pace, the worst"
    assert missed.found.value == pytest.approx(0.2)


def test_the_short_run_has_fewer_arms_and_shorter_runs(ran: list[Task]) -> None:
    config = SuiteConfig(scenarios=choose((), ci=True), seeds=(42,), ci=True)
    result = suite.run(config, lambda _: None)
    assert {task.arm for task in ran} == {
        "solo",
        "torch-ddp",
        "gloo-sync",
        "gloo-cadence",
        "cpu-async",
    }
    lengths = {task.run_s for task in ran if task.arm == "cpu-async"}
    assert lengths == {1.5 * result.solo_s, 2.5 * result.solo_s}


def test_an_arm_that_does_not_exist_is_misuse() -> None:
    with pytest.raises(UsageError, match="arm 'nccl-sync': there are torch-ddp"):
        SuiteConfig(scenarios=(), seeds=(1,), arms=("nccl-sync",))


def test_all_arms_have_the_optimizer_that_was_asked_for() -> None:
    weights = [torch.nn.Parameter(torch.ones(2))]
    own = Subject.of(Task(arm="solo", folder="", seed=1, run_s=1.0)).optimizer(weights)
    assert isinstance(own, torch.optim.Adam)
    given = Task(arm="solo", folder="", seed=1, run_s=1.0, optimizer="sgd")
    (group,) = Subject.of(given).optimizer(weights).param_groups
    assert (group["lr"], group["momentum"]) == (0.05, 0.9)
