"""The scaling suite: every arm of every scenario, seed after seed, each after a run alone."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from ddp_bench.environment import describe_environment
from ddp_bench.errors import UsageError
from ddp_bench.scaling import crew, torchft_arms
from ddp_bench.scaling.bars import Verdict, judge
from ddp_bench.scaling.measure import RunFigures, figures, target_loss
from ddp_bench.scaling.scenario import FLODL, PERIODIC, PERIODS, REFERENCE, Scenario
from ddp_bench.scaling.subject import DEVICE, Subject
from ddp_bench.scaling.table import Table
from ddp_bench.scaling.task import OptimizerName, Task
from ddp_bench.scaling.trace import read_steps

BASE_S = 0.020
ATTEMPTS = 3
_CALIBRATION_S = 3.0
_FIRST_REST_S = 0.003

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteConfig:
    """What is measured."""

    scenarios: tuple[Scenario, ...]
    seeds: tuple[int, ...]
    ci: bool = False
    model: str = "mlp"
    optimizer: OptimizerName = "own"
    arms: tuple[str, ...] = ()
    """Arms of flodl and competitors to run; those of each scenario when empty."""
    periods: tuple[int, ...] = PERIODS
    epochs: int | None = None
    """Of a run alone; ``None``: those of the model's small set-up."""

    def __post_init__(self) -> None:
        known = (REFERENCE, *PERIODIC, *FLODL)
        for arm in self.arms:
            if arm not in known:
                raise UsageError(f"arm {arm!r}: there are {', '.join(known)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteResult:
    """What was found."""

    environment: dict[str, Any]
    model: str
    optimizer: OptimizerName = "own"
    base_ms: float
    rest_ms: float
    """What backward and optimizer of a step take: the part of it that is not padded."""
    solo_s: float
    epoch_batches: int
    targets: dict[int, float]
    """Loss to reach, by seed."""
    skipped: dict[str, str]
    """Arms that could not run, and why."""
    repeated: int
    """Runs that were done again because a rank was not as slow as it should have been."""
    runs: tuple[RunFigures, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether every bar holds."""
        return all(verdict.holds for verdict in self.verdicts)


def run(config: SuiteConfig, say: Say) -> SuiteResult:
    """Measure everything.

    Args:
        config: What.
        say: Told one line after each run.

    Raises:
        BenchError: An arm did not train.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _Suite(config, say).run()
    finally:
        torch.set_num_threads(threads)


class _Suite:
    def __init__(self, config: SuiteConfig, say: Say) -> None:
        self._config, self._say = config, say
        self._subject = Subject.named(config.model, config.optimizer)
        self._epoch_batches = len(self._subject.data.train) // self._subject.batch_size
        epochs = config.epochs or self._subject.definition.mini.epochs
        self._solo_s = epochs * self._epoch_batches * BASE_S
        self._rest_s = _FIRST_REST_S
        self._repeated = 0

    def run(self) -> SuiteResult:
        reason = torchft_arms.missing()
        self._skipped = dict.fromkeys(torchft_arms.NAMES, reason) if reason else {}
        self._rest_s = self._measured_rest()
        runs: list[RunFigures] = []
        targets: dict[int, float] = {}
        for number, seed in enumerate(self._config.seeds):
            alone = self._measure(
                "solo", Task(arm="solo", folder="", seed=seed, run_s=self._solo_s)
            )
            targets[seed] = target_loss(alone.curve, alone.run_s)
            runs.append(alone)
            for scenario in self._config.scenarios:
                tasks = self._tasks(scenario, seed)
                turned = number % max(1, len(tasks))
                runs += [
                    self._measure(scenario.name, task, targets[seed])
                    for task in tasks[turned:] + tasks[:turned]
                ]
        return SuiteResult(
            environment=describe_environment(DEVICE),
            model=self._config.model,
            optimizer=self._config.optimizer,
            base_ms=BASE_S * 1000,
            rest_ms=self._rest_s * 1000,
            solo_s=self._solo_s,
            epoch_batches=self._epoch_batches,
            targets=targets,
            skipped=self._skipped,
            repeated=self._repeated,
            runs=tuple(runs),
            verdicts=tuple(judge(Table(run for run in runs if run.arm != "solo"))),
        )

    def _measured_rest(self) -> float:
        """Return what a step takes after its sleep: backward pass, optimizer, next batch."""
        with tempfile.TemporaryDirectory(prefix="flodl-scaling-") as folder:
            task = Task(
                arm="solo",
                model=self._config.model,
                optimizer=self._config.optimizer,
                folder=folder,
                seed=0,
                run_s=_CALIBRATION_S,
                rest_s=_FIRST_REST_S,
            )
            crew.run(task)
            steps = read_steps(task, 0)
        return statistics.median(after.started - step.padded for step, after in pairwise(steps))

    def _tasks(self, scenario: Scenario, seed: int) -> list[Task]:
        ci = self._config.ci
        run_s = scenario.run_s(self._solo_s, ci=ci)
        arms = scenario.ci_arms if ci and scenario.ci_arms else scenario.arms
        chosen = self._config.arms or arms
        return [
            Task(
                arm=arm,
                folder="",
                seed=seed,
                run_s=run_s,
                slow=scenario.slow_rank(run_s),
                link=scenario.link,
                period=period,
            )
            for arm in chosen
            if arm not in self._skipped
            for period in (self._config.periods if arm in PERIODIC else (0,))
        ]

    def _measure(self, scenario: str, given: Task, target: float | None = None) -> RunFigures:
        """Run an arm, again if the machine did not let its ranks keep their pace.

        Of runs that all were off it, the last one counts, and the bar of the pace is missed.
        """
        found = self._once(scenario, given, target)
        for _ in range(ATTEMPTS - 1):
            if found.is_paced:
                break
            self._repeated += 1
            found = self._once(scenario, given, target)
        return found

    def _once(self, scenario: str, given: Task, target: float | None) -> RunFigures:
        with tempfile.TemporaryDirectory(prefix="flodl-scaling-") as folder:
            task = replace(
                given,
                folder=folder,
                model=self._config.model,
                optimizer=self._config.optimizer,
                base_s=BASE_S,
                rest_s=self._rest_s,
            )
            crew.run(task)
            found = figures(task, scenario, self._subject, target)
        self._say(_line(found, target))
        return found


def _line(found: RunFigures, target: float | None) -> str:
    when = "" if found.time_to_loss is None else f"{found.time_to_loss:.2f} s"
    reached = "" if target is None else f"to {target:.3f}: {when or f'> {found.run_s:.1f} s'}, "
    factor = f", factor {found.realised_factor:.2f}" if len(found.ranks) > 1 else ""
    idle = " / ".join(f"{rank.steady_idle:.0%}" for rank in found.ranks)
    return (
        f"{found.scenario:<8}{found.label:<22} seed {found.seed}: {reached}"
        f"{found.samples_per_s:,.0f} samples/s, idle {idle}{factor}"
        + ("" if found.is_paced else "  NOT AT ITS PACE")
    )


def seeds_of(count: int) -> Sequence[int]:
    """Return the seeds of a suite of that many."""
    return range(42, 42 + count)
