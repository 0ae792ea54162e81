"""What must hold of the figures: ratios against what they were measured beside, never times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ddp_bench.speed.arms import BY_NAME, Policy
from ddp_bench.speed.compare import REFERENCE, Comparison
from ddp_bench.statistics import Ratio, mean_ratio_of, ratio_of

PUBLISHED = {
    "transformer": 0.69,
    "mlp": 0.71,
    "residual_tower": 0.76,
    "feedback_fixed": 0.84,
    "gated_routing": 0.88,
    "iterative_refine": 0.89,
    "gru_seq": 0.96,
}
"""Ratios of the original against eager PyTorch, on the GPU of a workstation."""
_DATA_CENTER = re.compile(r"\b(A100|A30|H100|H200|H800|GH200|B100|B200|GB200|L40S?|V100|MI\d+X?)\b")
MEAN = "geometric mean"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One bar: what was found, what is asked, and whether it holds."""

    policy: Policy
    bar: str
    subject: str
    found: Ratio
    most: float

    @property
    def holds(self) -> bool:
        """Whether the upper end is within the bar; at a bar of 1 a tie is."""
        return self.found.high <= self.most or (self.most == 1.0 and self.found.is_tie)


def is_data_center(gpu: str) -> bool:
    """Return whether a GPU, by its name, is made for data centers."""
    return _DATA_CENTER.search(gpu) is not None


def judge(comparison: Comparison, gpu: str | None) -> list[Verdict]:
    """Return the verdicts on all that was measured.

    Args:
        comparison: The figures of one policy.
        gpu: The GPU's name, ``None`` on the CPU.
    """
    bars = _Bars(comparison)
    if gpu is None:
        bars.each("flodl-graph", REFERENCE, 1.02)
        bars.each("flodl-trainer", "flodl-graph", 1.03)
        bars.each("flodl-compiled", "torch-compile", 1.03)
        bars.host_cost(0.5)
        return bars.verdicts
    is_big = is_data_center(gpu)
    if comparison.policy == "step":  # these two were set for losses that are read every step
        bars.each("flodl-captured", REFERENCE, lambda m: 0.90 if is_big else PUBLISHED.get(m, 1.0))
        bars.mean("flodl-captured", REFERENCE, 0.36 if is_big else 1.0)
    bars.best(1.0, 0.55 if is_big else 0.85)
    bars.each("flodl-step", "torch-manual-graph", 1.03)
    bars.each("flodl-captured", "torch-manual-graph", 1.03)
    bars.each("flodl-captured-compiled", "torch-manual-compiled", 1.03)
    bars.each("flodl-graph", REFERENCE, 1.02)
    bars.mean("flodl-graph", REFERENCE, 1.0)
    bars.each("flodl-trainer", "flodl-graph", 1.03)
    bars.each("flodl-trainer", "lightning", 1.0)
    bars.each("flodl-trainer", REFERENCE, 1.02)
    bars.memory(1.25)
    return bars.verdicts


def failures(comparison: Comparison) -> list[str]:
    """Return the arms of flodl that failed or computed something else, one line each."""
    return [
        f"{model}/{arm}: {reason}"
        for model, arm, reason in comparison.errors()
        if BY_NAME[arm.partition(" ")[0]].side == "flodl" and model != "feedback_loop"
    ]


class _Bars:
    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.verdicts: list[Verdict] = []

    def each(self, ours: str, theirs: str, most: float | Callable[[str], float]) -> None:
        for model in self._comparison.ten():
            ratio = self._comparison.ratio(model, ours, theirs)
            if ratio is not None:
                limit = most(model) if callable(most) else most
                self._add(f"{ours} / {theirs}", model, ratio, limit)

    def mean(self, ours: str, theirs: str, most: float) -> None:
        pairs = [
            (mine, other)
            for model in self._comparison.ten()
            if (mine := self._comparison.times(model, ours)) is not None
            and (other := self._comparison.times(model, theirs)) is not None
        ]
        self._mean(f"{ours} / {theirs}", pairs, most)

    def best(self, most: float, mean: float) -> None:
        pairs, name = [], "best flodl / best torch"
        for model in self._comparison.ten():
            ours = self._comparison.best(model, "flodl")
            theirs = self._comparison.best(model, "torch")
            if ours is None or theirs is None:
                continue
            self._add(name, model, ratio_of(ours[1], theirs[1]), most)
            pairs.append((ours[1], theirs[1]))
        self._mean(name, pairs, mean)

    def memory(self, most: float) -> None:
        for model in self._comparison.ten():
            theirs = self._comparison.row(model, "torch-fused")
            for arm in BY_NAME.values():
                if arm.side != "flodl" or not arm.is_captured or theirs is None:
                    continue
                ours = self._comparison.row(model, arm.name)
                if ours is None or not ours.vram_reserved_mb or not theirs.vram_reserved_mb:
                    continue
                value = ours.vram_reserved_mb / theirs.vram_reserved_mb
                ratio = Ratio(value=value, low=value, high=value)
                self._add(f"reserved memory, {arm.name} / torch-fused", model, ratio, most)

    def host_cost(self, most: float) -> None:
        """Judge what a loop costs beside the model, by a model with nothing to compute."""
        loop = self._comparison.times("noop", REFERENCE)
        ours = self._comparison.times("noop", "flodl-trainer")
        theirs = self._comparison.times("noop", "lightning")
        if loop is None or ours is None or theirs is None:
            return
        mine = [max(0.0, a - b) for a, b in zip(ours, loop, strict=True)]
        other = [a - b for a, b in zip(theirs, loop, strict=True)]
        if min(other) > 0:
            bar = "host cost over the plain loop, flodl-trainer / lightning"
            self._add(bar, "noop", ratio_of(mine, other), most)

    def _mean(
        self, bar: str, pairs: Sequence[tuple[Sequence[float], Sequence[float]]], most: float
    ) -> None:
        if len(pairs) > 1:
            self._add(bar, MEAN, mean_ratio_of(pairs), most)

    def _add(self, bar: str, subject: str, ratio: Ratio, most: float) -> None:
        policy = self._comparison.policy
        self.verdicts.append(
            Verdict(policy=policy, bar=bar, subject=subject, found=ratio, most=most)
        )


def missed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the bars that do not hold."""
    return [verdict for verdict in verdicts if not verdict.holds]
