"""The loader suite: equal content first, then interleaved rounds of all loaders of each case."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading import fallback
from ddp_bench.loading.arms import TORCH_WORKERS, Arm, make_arms
from ddp_bench.loading.bars import Verdict, judge, judge_fallback
from ddp_bench.loading.measure import Figures, Meter, compute_on
from ddp_bench.loading.sets import Case, make_cases

CHECKED_BATCHES = 3
ROUNDS = 5
BATCHES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteConfig:
    """How much is measured."""

    device: torch.device
    scale: float = 1.0
    """Share of the samples of each set."""
    rounds: int = ROUNDS
    batches: int = BATCHES
    """Batches of an epoch at most."""
    workers: tuple[int, ...] = TORCH_WORKERS
    threads: int = 1
    """Of torch in this process: more of them wait for each other where cores are shared."""
    cases: tuple[str, ...] = ()
    """Names of the cases to run; all when empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """Figures of all arms of one case, and what the bars say."""

    name: str
    arms: tuple[Figures, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteResult:
    """All cases of one run."""

    device: str
    torch_version: str
    scale: float
    rounds: int
    threads: int
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every bar holds."""
        return all(verdict.holds for case in self.cases for verdict in case.verdicts)


def run(config: SuiteConfig) -> SuiteResult:
    """Measure all loaders; files of the sets are removed afterwards.

    Raises:
        BenchError: Loaders that give different batches, or an unknown case.
    """
    with (
        _torch_threads(config.threads),
        tempfile.TemporaryDirectory(prefix="flodl-loading-") as folder,
    ):
        cases = make_cases(Path(folder), config.scale)
        on_gpu = config.device.type == "cuda"
        names = [case.name for case in cases] + [fallback.CASE] * on_gpu
        for name in config.cases:
            if name not in names:
                raise BenchError(f"case {name!r}: there are {', '.join(names)}")
        chosen = config.cases or tuple(names)
        results = [_run_full(config.device)] if fallback.CASE in chosen else []
        results += [_run_case(case, config) for case in cases if case.name in chosen]
    return SuiteResult(
        device=torch.cuda.get_device_name(config.device) if on_gpu else "cpu",
        torch_version=torch.__version__,
        scale=config.scale,
        rounds=config.rounds,
        threads=config.threads,
        cases=tuple(results),
    )


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_full(device: torch.device) -> CaseResult:
    verdicts = judge_fallback(fallback.CASE, fallback.measure(device))
    return CaseResult(name=fallback.CASE, arms=(), verdicts=tuple(verdicts))


def _run_case(case: Case, config: SuiteConfig) -> CaseResult:
    arms = make_arms(case, config.device, config.workers)
    try:
        check_equal(case, arms)
        compute = compute_on(config.device)
        meters = [Meter(arm, compute, config.batches) for arm in arms]
        for meter in meters:
            meter.warm_up()
        for number in range(config.rounds):
            for meter in meters if number % 2 == 0 else reversed(meters):
                meter.round()
        figures = [meter.figures() for meter in meters]
    finally:
        for arm in arms:
            arm.close()
    verdicts = judge(case.name, figures, on_gpu=config.device.type == "cuda")
    return CaseResult(name=case.name, arms=tuple(figures), verdicts=tuple(verdicts))


def check_equal(case: Case, arms: Sequence[Arm]) -> None:
    """Raise unless all arms give the same first batches, in the same order.

    Workers that share a stream take turns by whole batches: their arms are not compared.
    """
    reference: list[list[torch.Tensor]] | None = None
    for arm in arms:
        takes_turns = arm.name.endswith((" workers", "processes")) and arm.name != "0 workers"
        if case.stream is not None and takes_turns:
            continue
        batches = []
        for batch in arm.epoch(0):
            batches.append([part.cpu() for part in batch])
            if len(batches) == CHECKED_BATCHES:
                break
        if reference is None:
            reference = batches
        same = len(batches) == len(reference) and all(
            torch.equal(a, b)
            for ours, theirs in zip(batches, reference, strict=True)
            for a, b in zip(ours, theirs, strict=True)
        )
        if not same:
            raise BenchError(f"{case.name}: {arm.side} {arm.name} gives other batches than flodl")
