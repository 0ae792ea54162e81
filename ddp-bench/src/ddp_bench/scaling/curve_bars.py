"""What must hold of the simulated curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_WALL_S = 300.0
MEMORY_BYTES = 64 << 10
CONTROL_BYTES = 2048.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One simulated run: its place on the curves and its figures."""

    world: int
    speeds: str
    travel: str
    batches_per_rank: int
    hosts: int
    digest: str
    is_exact: bool
    sync_efficiency: float
    """Of averaging after every batch with equal shares."""
    batches_per_second: float
    idle: float
    messages_per_second: float
    bytes_per_rank_second: float
    """Control bytes."""
    state_bytes_per_rank: float
    records_per_second: float
    result: dict[str, Any]
    """All else that the simulation gave."""
    wall_s: float

    @property
    def efficiency(self) -> float:
        """Part of the sum of all speeds that was reached."""
        return float(self.result["efficiency"])

    @property
    def event_us(self) -> float:
        """Processor time of the controller for one event."""
        return float(self.result["controller"]["mean_us"])

    @property
    def round_ms(self) -> float:
        """Processor time of the controller for one average."""
        return float(self.result["controller"]["per_window_ms"])

    @property
    def controller_load(self) -> float:
        """Processor time of the controller over simulated time."""
        return float(self.result["controller"]["seconds"]) / float(self.result["seconds"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One bar: what was found, what is asked, and whether it holds."""

    bar: str
    found: float
    least: float | None = None
    most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limits."""
        return (self.least is None or self.found >= self.least) and (
            self.most is None or self.found <= self.most
        )

    @property
    def asked(self) -> str:
        """The limits as text."""
        parts = [f">= {self.least:g}"] if self.least is not None else []
        return " and ".join(parts + ([f"<= {self.most:g}"] if self.most is not None else []))


def slope(points: Sequence[Point], value: Callable[[Point], float]) -> float:
    """Return the slope of a straight line through the logarithms of a value over the ranks."""
    return statistics.linear_regression(
        [math.log(point.world) for point in points], [math.log(value(point)) for point in points]
    ).slope


def judge(points: Sequence[Point], *, wall_s: float, is_same: bool) -> list[Verdict]:
    """Return the verdicts on a set of curves.

    Args:
        points: All of them.
        wall_s: What simulating them took.
        is_same: Whether one that was simulated twice came out the same.
    """
    ring = sorted(
        (p for p in points if p.travel == "ring" and p.speeds == "lognormal"),
        key=lambda point: point.world,
    )
    largest = ring[-1]
    most = [p for p in points if p.world == largest.world]
    found = [
        Verdict(
            bar=f"controller time over simulated time, W={largest.world}",
            found=max(p.controller_load for p in most),
            most=1.0,
        ),
        Verdict(
            bar="memory of the controller a rank, bytes",
            found=max(p.state_bytes_per_rank for p in most),
            most=MEMORY_BYTES,
        ),
        Verdict(
            bar="control bytes a rank and second where nobody dies",
            found=max(p.bytes_per_rank_second for p in most if not p.result["deaths"]),
            most=CONTROL_BYTES,
        ),
        *_relay(most),
        *_deaths(points),
        Verdict(
            bar="every sample accounted for", found=float(all(p.is_exact for p in points)), least=1
        ),
        Verdict(bar="the same twice", found=float(is_same), least=1),
        Verdict(bar="seconds for the set", found=wall_s, most=MOST_WALL_S),
    ]
    if len(ring) > 1:
        found += [
            Verdict(bar="slope of the time of an event", found=slope(ring, _event), most=0.2),
            Verdict(bar="slope of control bytes a rank", found=slope(ring, _control), most=0.05),
            Verdict(bar="slope of the time of an average", found=slope(ring, _round), most=1.1),
        ]
    return found


def _event(point: Point) -> float:
    return point.event_us


def _control(point: Point) -> float:
    return point.bytes_per_rank_second


def _round(point: Point) -> float:
    return point.round_ms


def _relay(most: Sequence[Point]) -> list[Verdict]:
    """Compare what passes the controller with and without relays, for each average."""
    found = {}
    for point in most:
        if point.speeds == "equal" and point.travel in ("star", "relay"):
            found[point.travel] = point.result["reduce_bytes"] / point.result["windows"]
            share = point.hosts / point.world
    if len(found) < 2:
        return []
    return [
        Verdict(
            bar="bytes through relays over those of a star, part of H/W",
            found=found["relay"] / found["star"] / share,
            least=0.95,
            most=1.05,
        )
    ]


def _deaths(points: Sequence[Point]) -> list[Verdict]:
    dying = [p for p in points if p.result["deaths"]]
    if not dying:
        return []
    longest = max(float(p.result["longest_recovery"]) for p in dying)
    return [Verdict(bar="seconds from a death seen to training", found=longest, most=1.0)]


def judge_reality(
    measured: dict[str, Any], simulated: Callable[[float, float, int, int], dict[str, Any]]
) -> list[Verdict]:
    """Compare two simulated ranks with what the scaling suite measured of them.

    Args:
        measured: JSON of that suite.
        simulated: ``(factor, base ms, batches of an epoch, epochs) -> figures``.
    """
    runs = [r for r in measured["runs"] if r["arm"] == "cpu-cadence" and r["scenario"] == "slow"]
    if not runs:
        return []
    epoch_batches = int(measured["epoch_batches"])
    steps = [sum(rank["steps"] for rank in run["ranks"]) for run in runs]
    rates = [count / run["run_s"] for count, run in zip(steps, runs, strict=True)]
    per_epoch = [
        run["windows"] * epoch_batches / count for count, run in zip(steps, runs, strict=True)
    ]
    epochs = max(1, round(statistics.median(steps) / epoch_batches))
    factor = statistics.median(
        run["ranks"][-1]["step_ms"] / run["ranks"][0]["step_ms"] for run in runs
    )
    model = simulated(factor, float(measured["base_ms"]), epoch_batches, epochs)
    return [
        Verdict(
            bar="throughput of W=2, model over measured",
            found=model["batches_per_second"] / statistics.median(rates),
            least=0.85,
            most=1.15,
        ),
        Verdict(
            bar="averages an epoch of W=2, model over measured",
            found=model["windows"] / statistics.median(per_epoch),
            least=0.8,
            most=1.2,
        ),
    ]
