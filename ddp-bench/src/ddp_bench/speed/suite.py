"""The suite: all arms of a model side by side, round by round, their order rotated."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ddp_bench.errors import BenchError
from ddp_bench.speed import lightning_arm, results
from ddp_bench.speed.arms import BY_NAME, Arm, Device, Policy
from ddp_bench.speed.crew import Worker, WorkerFailedError
from ddp_bench.speed.models import SpeedModel
from ddp_bench.speed.results import RoundResult
from ddp_bench.speed.workload import Dims, Precision, Task

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteConfig:
    """What is measured, and how often.

    A run is ``warmup`` epochs that do not count and ``epochs`` that do; a round is one run that
    does not count and ``runs`` that do.
    """

    models: tuple[SpeedModel, ...]
    arms: tuple[Arm, ...]
    device: Device
    dims: Dims
    precision: Precision = "fp32"
    policies: tuple[Policy, ...] = ("step", "epoch")
    rounds: int = 1
    runs: int = 3
    discarded: int = 1
    """Runs of a round that are taken first and do not count."""
    epochs: int = 20
    warmup: int = 3
    threads: int = 1
    seed: int = 0
    has_variants: bool = True
    """Measure torch's attention both with and without its weights; else without them only."""
    starting: int = 1
    """Processes that build and compile at the same time; none is measured meanwhile."""
    ahead: int = 1
    """Models whose processes are started together."""
    is_strict: bool = False
    """End the suite where an arm of flodl does not start, instead of measuring the others."""
    cache: Path | None = None
    """Where compiled kernels are kept; ``None``: nowhere, every suite compiles anew."""
    output: Path = field(default_factory=lambda: Path("runs"))


class Suite:
    """Measures all models, one after the other.

    Args:
        config: What to do.
        environment: What is known about the machine; goes into every result.
        say: Takes lines about the progress.
    """

    def __init__(self, config: SuiteConfig, environment: dict[str, Any], say: Say) -> None:
        self._config = config
        self._environment = environment
        self._say = say

    def run(self) -> list[RoundResult]:
        """Measure, save each model's results when they are there, and return all.

        Raises:
            RunFolderError: The output folder cannot be written.
            BenchError: The suite is strict, and an arm of flodl did not start.
        """
        config = self._config
        results.forget(config.output, [model.name for model in config.models])
        found = []
        with tempfile.TemporaryDirectory(prefix="flodl-bench-") as folder:
            cache = config.cache or Path(folder)
            models = list(config.models)
            for first in range(0, len(models), config.ahead):
                group = models[first : first + config.ahead]
                for sitting in self._sittings(group, cache.absolute()):
                    with sitting:
                        rows = sitting.measure()
                    results.save(config.output, rows)
                    found += rows
        return found

    def _sittings(self, models: Sequence[SpeedModel], cache: Path) -> Iterator[Sitting]:
        with contextlib.ExitStack() as stack:
            sittings = [
                stack.enter_context(Sitting(model, self._config, self._environment, self._say))
                for model in models
            ]
            starts = [(sitting, task) for sitting in sittings for task in sitting.tasks()]
            # what compiles takes longest: begun last, it would keep all others waiting
            starts.sort(key=lambda start: not BY_NAME[start[1].arm].is_compiled)
            with ThreadPoolExecutor(self._config.starting) as pool:
                waits = [pool.submit(sitting.start, task, cache) for sitting, task in starts]
                for wait in waits:
                    wait.result()
            if self._config.is_strict:
                for sitting in sittings:
                    sitting.require_started()
            yield from sittings


class Sitting:
    """All arms of one model, from their start to their results.

    Args:
        model: The model.
        config: What to do.
        environment: What is known about the machine.
        say: Takes lines about the progress.
    """

    def __init__(
        self, model: SpeedModel, config: SuiteConfig, environment: dict[str, Any], say: Say
    ) -> None:
        self._model = model
        self._config = config
        self._environment = environment
        self._say = say
        self._workers: dict[Task, Worker] = {}
        self._ready: dict[Task, dict[str, Any]] = {}
        self._errors: dict[Task, str] = {}
        self._facts: dict[Task, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.close()

    def tasks(self) -> list[Task]:
        """Return the arms; those of torch twice where attention has two ways."""
        config = self._config
        return [
            Task(
                model=self._model.name,
                arm=arm.name,
                variant=variant,
                device=config.device,
                dims=config.dims,
                precision=config.precision,
                threads=config.threads,
                seed=config.seed,
            )
            for arm in config.arms
            if not arm.models or self._model.name in arm.models
            for variant in self._variants(arm)
        ]

    def _variants(self, arm: Arm) -> tuple[str, ...]:
        has_two = self._config.has_variants and self._model.name == "transformer"
        has_two = has_two and arm.side == "torch"
        return ("", "weights") if has_two else ("",)

    def start(self, task: Task, cache: Path) -> None:
        """Start one arm and wait until its first epoch is over."""
        if task.arm == "lightning" and not lightning_arm.is_installed():
            self._errors[task] = "not installed: pip install pytorch-lightning"
            return
        threads = max(1, (os.cpu_count() or 1) // self._config.starting)
        environment = {
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        }
        worker = self._workers[task] = Worker(task, environment)
        try:
            self._ready[task] = worker.ready()
        except WorkerFailedError as error:
            self._fail(task, error)

    def require_started(self) -> None:
        """Raise if an arm of flodl did not start.

        Raises:
            BenchError: One did not.
        """
        for task, reason in self._errors.items():
            if BY_NAME[task.arm].side == "flodl":
                raise BenchError(f"{task.title} did not start: {reason}")

    def measure(self) -> list[RoundResult]:
        """Take all rounds and return what they found."""
        config = self._config
        rows: list[RoundResult] = []
        for number in range(config.rounds):
            for policy in config.policies:
                rows += self._round(number, policy)
        for task in list(self._alive()):
            with self._caught(task):
                self._facts[task] = self._workers[task].end()
        return [self._with_facts(row) for row in rows]

    def _alive(self) -> list[Task]:
        return [task for task in self.tasks() if task not in self._errors]

    def _round(self, number: int, policy: Policy) -> list[RoundResult]:
        config, tasks = self._config, self.tasks()
        runs: dict[Task, list[list[dict[str, Any]]]] = {task: [] for task in tasks}
        memory: dict[Task, dict[str, Any]] = {}
        for run in range(config.discarded + config.runs):
            shift = (number + run) % len(tasks)
            for task in tasks[shift:] + tasks[:shift]:
                if task in self._errors:
                    continue
                with self._caught(task):
                    is_first = run == config.discarded
                    answer = self._workers[task].run(
                        policy, config.warmup + config.epochs, reset_memory=is_first
                    )
                    memory[task] = answer["memory"]
                    if run >= config.discarded:
                        runs[task].append(answer["epochs"][config.warmup :])
        rows = [self._row(number, policy, task, runs[task], memory.get(task)) for task in tasks]
        self._tell(number, policy, rows)
        return rows

    def _row(
        self,
        number: int,
        policy: Policy,
        task: Task,
        runs: list[list[dict[str, Any]]],
        memory: dict[str, Any] | None,
    ) -> RoundResult:
        config = self._config
        common: dict[str, Any] = {
            "name": task.model,
            "arm": task.arm,
            "variant": task.variant,
            "sync_policy": policy,
            "round": number,
            "device": config.device,
            "dims": config.dims,
            "precision": config.precision,
            "runs": config.runs,
            "warmup_epochs": config.warmup,
            "measured_epochs": config.epochs,
            "env": self._environment,
        }
        if task in self._errors:
            return RoundResult(**common, error=self._errors[task])
        ready = self._ready[task]
        medians = [statistics.median(epoch["ms"] for epoch in run) for run in runs]
        best = runs[medians.index(min(medians))]
        times = [epoch["ms"] for epoch in best]
        hosts = [epoch["host_ms"] for epoch in best]
        batches = ready["batches_per_epoch"]
        is_timed = policy == "epoch" and None not in hosts
        cpu = [statistics.median(epoch["cpu_ms"] for epoch in run) for run in runs]
        return RoundResult(
            **common,
            batches_per_epoch=batches,
            batch_size=ready["batch_size"],
            param_count=ready["param_count"],
            epoch_times_ms=times,
            run_medians_ms=medians,
            median_epoch_ms=min(medians),
            mean_epoch_ms=statistics.fmean(times),
            min_epoch_ms=min(times),
            max_epoch_ms=max(times),
            median_cpu_ms=min(cpu),
            host_us_per_step=statistics.median(hosts) / batches * 1e3 if is_timed else None,
            final_loss=best[-1]["loss"],
            first_losses=ready["losses"],
            first_epoch_loss=ready["loss"],
            first_epoch_ms=ready["ms"],
            first_step_ms=ready["first_step_ms"],
            settings=ready["settings"],
            **(memory or {}),
        )

    def _with_facts(self, row: RoundResult) -> RoundResult:
        for task in self.tasks():
            if (task.arm, task.variant) == (row.arm, row.variant):
                if task in self._errors:
                    return dataclasses.replace(row, error=self._errors[task])
                return dataclasses.replace(row, capture=_capture(self._facts[task]))
        raise KeyError(row.label)

    @contextlib.contextmanager
    def _caught(self, task: Task) -> Iterator[None]:
        try:
            yield
        except WorkerFailedError as error:
            self._fail(task, error)

    def _fail(self, task: Task, error: WorkerFailedError) -> None:
        self._errors[task] = str(error)
        self._say(f"  {task.title} failed: {error}")

    def _tell(self, number: int, policy: Policy, rows: Sequence[RoundResult]) -> None:
        figures = [f"{row.label} {row.median_epoch_ms:.1f}" for row in rows if row.median_epoch_ms]
        self._say(f"{self._model.name} round {number} ({policy}): {', '.join(figures)} ms")


def _capture(facts: dict[str, Any]) -> dict[str, Any] | None:
    found = dict(facts.get("capture") or {})
    for name in ("pool_mb", "device_ms", "captured_steps", "eager_steps"):
        if name in facts:
            found[name] = facts[name]
    return found or None
