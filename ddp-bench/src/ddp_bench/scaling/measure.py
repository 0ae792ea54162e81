"""From what the ranks of a run wrote down to its figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ddp_bench.scaling.scenario import FLODL, PERIODIC
from ddp_bench.scaling.subject import Subject, evaluation_loss
from ddp_bench.scaling.task import Task
from ddp_bench.scaling.trace import Step, load_snapshot, read_snapshots, read_steps, state_of

TARGET_AT = 0.8
"""Part of the run alone whose loss the others are to reach."""
CALIBRATION_S = 2.0
"""Seconds after which a rank's idle time counts as that of a run in its stride."""
FACTOR_TOLERANCE = 0.05
_FLOAT_BYTES = 4

Curve = Sequence[tuple[float, float]]
"""Seconds since the first step, and the loss of the shared model then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFigures:
    """One rank of a run."""

    steps: int
    busy: float
    """Part of the time that its steps took, their sleep included; the rest it waited."""
    steady_busy: float
    """The same after calibration."""
    pace: float
    """What its steps lasted, over what they were to last."""
    step_ms: float
    """Mean of what its steps lasted."""

    @property
    def steady_idle(self) -> float:
        """Part of the time after calibration in which it waited."""
        return max(0.0, 1 - self.steady_busy)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFigures:
    """One run of one arm."""

    arm: str
    scenario: str
    seed: int
    period: int
    run_s: float
    wanted_factor: float
    curve: list[tuple[float, float]]
    time_to_loss: float | None
    """Seconds to the loss that was asked for; ``None`` where it was not reached."""
    samples_per_s: float
    ranks: list[RankFigures]
    payload_bytes: int
    """What each rank put into averages."""
    shares_after: float | None = None
    """Batches of the slow rank over all, from the fifth average after a change of speed on."""
    windows: int | None = None
    overhead: float | None = None
    """Part of the time of flodl's windows that their averages took."""
    is_exact: bool | None = None
    """Whether flodl accounted for every sample of every epoch that ended."""

    @property
    def label(self) -> str:
        """The arm, with its period where it has one."""
        return f"{self.arm} H={self.period}" if self.period else self.arm

    @property
    def realised_factor(self) -> float:
        """What a step of the slow rank lasted, over one of the fast rank."""
        return self.ranks[-1].step_ms / self.ranks[0].step_ms

    @property
    def pace_error(self) -> float:
        """How far the steps of a rank were off what they were to last, relatively; the worst."""
        return max(abs(rank.pace - 1) for rank in self.ranks)

    @property
    def is_paced(self) -> bool:
        """Whether every rank was as slow as it was to be, within 5 %."""
        return self.pace_error <= FACTOR_TOLERANCE

    @property
    def fast_idle(self) -> float:
        """Part of the time after calibration in which the fast rank waited."""
        return self.ranks[0].steady_idle

    @property
    def share_error(self) -> float | None:
        """How far the shares were off the ideal after a change of speed, relatively."""
        if self.shares_after is None:
            return None
        ideal = 1 / (1 + self.wanted_factor)
        return abs(self.shares_after / ideal - 1)

    @property
    def final_loss(self) -> float:
        """Loss of the last shared model."""
        return self.curve[-1][1]


def target_loss(curve: Curve, run_s: float) -> float:
    """Return the loss at 80 % of a run: the mean of the three evaluations around it."""
    nearest = sorted(curve, key=lambda point: abs(point[0] - TARGET_AT * run_s))[:3]
    return statistics.fmean(loss for _, loss in nearest)


def time_to_loss(curve: Curve, target: float) -> float | None:
    """Return when the loss is first at or under the target and stays there for two evaluations."""
    for (when, loss), (_, following) in pairwise(curve):
        if loss <= target and following <= target:
            return when
    return None


def figures(task: Task, scenario: str, subject: Subject, target: float | None = None) -> RunFigures:
    """Read what a run left in its folder, and evaluate the copies of its model.

    Args:
        task: What was run.
        scenario: Under which name.
        subject: What was trained.
        target: Loss that it was to reach.
    """
    count = 1 if task.arm == "solo" else task.ranks
    steps = [read_steps(task, rank) for rank in range(count)]
    started = min(each[0].started for each in steps)
    ended = started + task.run_s
    within = [[step for step in each if step.started < ended] for each in steps]
    copies = _copies(task, subject, ended)
    curve = [(when - started, loss) for when, loss in copies]
    outcome = _outcome(task)
    windows = None if outcome is None else _windows(outcome, task.run_s)
    return RunFigures(
        arm=task.arm,
        scenario=scenario,
        seed=task.seed,
        period=task.period,
        run_s=task.run_s,
        wanted_factor=task.slow.factor,
        curve=curve,
        time_to_loss=None if target is None else time_to_loss(curve, target),
        samples_per_s=sum(step.samples for each in within for step in each) / task.run_s,
        ranks=[_rank(each, task.rest_s, started, ended) for each in within],
        payload_bytes=_payload(task, within[0], windows, subject),
        shares_after=_shares_after(task, within, [when for when, _ in copies]),
        windows=None if windows is None else len(windows),
        overhead=None if windows is None else _overhead(windows),
        is_exact=None if outcome is None else _is_exact(outcome),
    )


def _copies(task: Task, subject: Subject, ended: float) -> list[tuple[float, float]]:
    model = subject.build()
    numel = sum(tensor.numel() for tensor in state_of(model))
    found = []
    for when, values in read_snapshots(task, numel):
        if when <= ended:
            load_snapshot(model, values)
            found.append((when, evaluation_loss(subject, model)))
    return found


def _rank(steps: Sequence[Step], rest_s: float, started: float, ended: float) -> RankFigures:
    lasted = [step.padded - step.started + rest_s for step in steps]
    steady = [
        seconds
        for step, seconds in zip(steps, lasted, strict=True)
        if step.started >= started + CALIBRATION_S
    ]
    return RankFigures(
        steps=len(steps),
        busy=sum(lasted) / (ended - started),
        steady_busy=sum(steady) / (ended - started - CALIBRATION_S),
        pace=sum(lasted) / sum(step.wanted for step in steps),
        step_ms=1000 * statistics.fmean(lasted),
    )


def _payload(
    task: Task, steps: Sequence[Step], windows: list[dict[str, Any]] | None, subject: Subject
) -> int:
    size = _FLOAT_BYTES * sum(p.numel() for p in subject.build().parameters())
    if task.arm == "solo":
        return 0
    if task.arm in PERIODIC:
        return size * (len(steps) // task.period)
    if windows is None or task.arm == "gloo-sync":
        return size * len(steps)
    return size * len(windows)


def _outcome(task: Task) -> dict[str, Any] | None:
    if task.arm not in FLODL:
        return None
    found: dict[str, Any] = json.loads(task.outcome_file.read_text(encoding="utf-8"))
    return found


def _windows(outcome: dict[str, Any], run_s: float) -> list[dict[str, Any]]:
    """Return the windows that began within the measured time."""
    found, elapsed_s = [], 0.0
    for window in outcome["windows"]:
        if elapsed_s >= run_s:
            break
        found.append(window)
        elapsed_s += window["window_ms"] / 1000
    return found


def _overhead(windows: Sequence[dict[str, Any]]) -> float:
    total = sum(window["window_ms"] for window in windows)
    return sum(window["reduce_ms"] for window in windows) / total if total else 0.0


def _is_exact(outcome: dict[str, Any]) -> bool:
    """Return whether every epoch that ended before the run was stopped adds up."""
    finished = set(outcome["finished"])
    return bool(finished) and not outcome["deaths"] and not finished & set(outcome["inexact"])


def _shares_after(task: Task, steps: Sequence[Sequence[Step]], copies: list[float]) -> float | None:
    slow = task.slow
    if slow.pattern != "change" or task.arm not in FLODL:
        return None
    changed = steps[slow.rank][0].started + slow.half_s
    later = [when for when in copies if when > changed]
    if len(later) < 6:
        return None
    counts = [sum(step.started >= later[4] for step in each) for each in steps]
    return counts[slow.rank] / sum(counts)
