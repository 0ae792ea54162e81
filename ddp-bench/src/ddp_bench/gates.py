"""The gates a cell must pass, judged on its result alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ddp_bench.results import CellResult

Verdict = Literal["PASS", "FAIL", "SKIP"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One rule of a gate, and the numbers it was judged by."""

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """A gate's verdict: FAIL when one of its checks fails."""

    name: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """FAIL when a check failed, else PASS."""
        return "FAIL" if any(check.verdict == "FAIL" for check in self.checks) else "PASS"

    @property
    def failures(self) -> list[str]:
        """Name and numbers of each failed check."""
        return [f"{c.name}: {c.detail}" for c in self.checks if c.verdict == "FAIL"]


def judge_sane(result: CellResult) -> Gate:
    """Return gate G1: the run is whole, its loss fell, every sample came once, the floor is met."""
    if result.status != "complete":
        reason = result.error or "no reason recorded"
        return Gate(name="sane", checks=(_check("status", False, f"{result.status}: {reason}"),))
    return Gate(
        name="sane",
        checks=(
            _check("status", True, "complete"),
            _epochs(result),
            _finite_losses(result),
            _falling_loss(result),
            _coverage(result),
            _floor(result),
        ),
    )


def meets_floor(value: float, floor: float, *, higher_is_better: bool) -> bool:
    """Return whether ``value`` is at the floor or on the good side of it; NaN never is."""
    return value >= floor if higher_is_better else value <= floor


def _check(name: str, passed: bool, detail: str) -> Check:
    return Check(name=name, verdict="PASS" if passed else "FAIL", detail=detail)


def _epochs(result: CellResult) -> Check:
    ran, asked = len(result.epochs), result.config.epochs
    return _check("epochs", ran == asked, f"{ran} of {asked}")


def _finite_losses(result: CellResult) -> Check:
    losses = [epoch.loss for epoch in result.epochs] + [loss for _, loss in result.loss_curve]
    broken = sum(not math.isfinite(loss) for loss in losses)
    return _check("finite loss", not broken, f"{broken} of {len(losses)} values are not finite")


def _falling_loss(result: CellResult) -> Check:
    losses = [loss for _, loss in result.loss_curve]
    if len(losses) < 2:
        return _check("falling loss", False, f"{len(losses)} points are too few to tell")
    tenth = max(1, len(losses) // 10)
    first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
    return _check(
        "falling loss", last < first, f"mean of the first tenth {first:.4f}, of the last {last:.4f}"
    )


def _coverage(result: CellResult) -> Check:
    seen = result.coverage
    return _check(
        "coverage",
        seen.seen == seen.expected > 0 and seen.duplicates == 0,
        f"{seen.seen} of {seen.expected} samples, {seen.duplicates} seen twice in a pass",
    )


def _floor(result: CellResult) -> Check:
    value, floor = result.final.eval, result.config.floor
    if floor is None:
        return Check(
            name="floor", verdict="SKIP", detail="there is none for this amount of training"
        )
    sign = ">=" if result.final.higher_is_better else "<="
    if value is None:
        return _check("floor", False, f"no evaluation, floor {sign} {floor:g}")
    return _check(
        "floor",
        meets_floor(value, floor, higher_is_better=result.final.higher_is_better),
        f"{result.final.metric} {value:.4g}, floor {sign} {floor:g}",
    )
