"""How the numbers of several nodes become the numbers of the node above them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import mul
from typing import Any

from flodl.core.errors import ConfigError
from flodl.records.errors import ReductionConflict


class Reduction(StrEnum):
    """How a key's values roll up."""

    MEAN = "mean"
    """Weighted by work, the samples behind each value."""
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    LAST = "last"
    """The value of the child with the most work."""


FIXED: Mapping[str, Reduction] = {
    "loss": Reduction.MEAN,
    "throughput": Reduction.SUM,
    "batch_share": Reduction.SUM,
    "data_starve": Reduction.MAX,
    "compute_only_ms": Reduction.MAX,
    "anchor": Reduction.LAST,
    "sync_ms": Reduction.LAST,
    "cpu_avg_ms": Reduction.LAST,
    "d_raw": Reduction.LAST,
    "lambda_ema": Reduction.LAST,
}

_SUMMED_RES = (
    "vram_alloc",
    "vram_alloc_max",
    "vram_total",
    "gpus",
    "ram_used",
    "ram_total",
    "cpus",
    "power_w",
)
_PEAK_RES = ("gpu_util_max", "temp_c")
# weighted by the number of devices, not by work: with work as weight an idle GPU vanishes
_WEIGHTED_RES = {"gpu_util": "gpus", "cpu": "cpus"}
RES_KEYS = frozenset((*_SUMMED_RES, *_PEAK_RES, *_WEIGHTED_RES))

NonFinite = dict[str, dict[str, int]]


class Reductions:
    """The reduction of every key: fixed ones, declared ones, and the mean for the rest."""

    def __init__(self) -> None:
        self._declared: dict[str, Reduction] = {}

    def declare(self, key: str, reduction: Reduction | str) -> None:
        """Declare how a user's key rolls up.

        Raises:
            ReductionConflict: The key's reduction is fixed.
            ConfigError: ``reduction`` is none.
        """
        try:
            chosen = Reduction(reduction)
        except ValueError as error:
            raise ConfigError(
                f"reduction {str(reduction)!r} for {key!r}: must be one of "
                f"{', '.join(sorted(Reduction))}"
            ) from error
        if key in FIXED:
            raise ReductionConflict(
                f"the reduction of {key!r} is fixed as {FIXED[key]!s}, it cannot be {chosen!s}",
                hint="record your scalar under another name",
            )
        self._declared[key] = chosen

    def of(self, key: str) -> Reduction:
        """Return the reduction of ``key``."""
        return self._declared.get(key) or FIXED.get(key, Reduction.MEAN)

    def table(self) -> dict[str, str]:
        """Return every fixed and declared reduction by key."""
        return {key: str(reduction) for key, reduction in {**FIXED, **self._declared}.items()}


@dataclass(slots=True)
class NodeValues:
    """The numbers of one node over one interval."""

    metrics: dict[str, float | None] = field(default_factory=dict)
    """``None``: measured, but no value was finite. A key that is absent was not measured."""
    work: float = 0
    """Samples behind the values."""
    kwork: dict[str, float] = field(default_factory=dict)
    """Samples behind single keys, where they differ from ``work``."""
    nonfinite: NonFinite = field(default_factory=dict)

    def weight(self, key: str) -> float:
        """Return the samples behind the value of ``key``."""
        return self.kwork.get(key, self.work)


def measured(
    metrics: Mapping[str, float],
    work: float,
    *,
    nonfinite: Mapping[str, Mapping[str, int]] | None = None,
) -> NodeValues:
    """Return a leaf's values, with what is not finite moved where it stays visible."""
    if not nonfinite and all(map(math.isfinite, metrics.values())):
        return NodeValues(metrics=dict(metrics), work=work)
    values = NodeValues(work=work)
    if nonfinite:
        values.nonfinite = {key: dict(counts) for key, counts in nonfinite.items()}
        values.metrics = dict.fromkeys(values.nonfinite)
    for key, value in metrics.items():
        if math.isfinite(value):
            values.metrics[key] = value
        else:
            values.metrics[key] = None
            counts = values.nonfinite.setdefault(key, {})
            counts[str(value)] = counts.get(str(value), 0) + 1
    return values


def combine(children: Iterable[NodeValues], reductions: Reductions) -> NodeValues:
    """Return the values of a node from those of its direct children.

    The mean of a key is weighted by the samples behind that key, so that the mean of means is
    the mean over all leaves also where some of them did not report it.
    """
    nodes = list(children)
    if len(nodes) > 1 and _is_even(nodes):
        return _combine_even(nodes, reductions)
    total = NodeValues(work=sum(child.work for child in nodes))
    reporting: dict[str, list[NodeValues]] = {}
    for child in nodes:
        for key in child.metrics:
            reporting.setdefault(key, []).append(child)
        for key, counts in child.nonfinite.items():
            merged = total.nonfinite.setdefault(key, {})
            for name, count in counts.items():
                merged[name] = merged.get(name, 0) + count
    for key, reporters in reporting.items():
        _combine_key(key, reporters, reductions.of(key), total)
    return total


def _is_even(nodes: list[NodeValues]) -> bool:
    """Return whether all children measured the same, all of it finite and with work behind it."""
    keys = list(nodes[0].metrics)
    return all(
        not child.kwork
        and not child.nonfinite
        and child.work > 0
        and list(child.metrics) == keys
        and None not in child.metrics.values()
        for child in nodes
    )


def _combine_even(nodes: list[NodeValues], reductions: Reductions) -> NodeValues:
    """Do what :func:`combine` does, column by column."""
    works = [child.work for child in nodes]
    total = NodeValues(work=sum(works))
    columns: Iterable[Sequence[Any]] = zip(*(c.metrics.values() for c in nodes), strict=True)
    for key, column in zip(nodes[0].metrics, columns, strict=True):
        match reductions.of(key):
            case Reduction.MEAN:
                total.metrics[key] = sum(map(mul, column, works)) / total.work
            case Reduction.SUM:
                total.metrics[key] = sum(column)
            case Reduction.MAX:
                total.metrics[key] = max(column)
            case Reduction.MIN:
                total.metrics[key] = min(column)
            case Reduction.LAST:
                total.metrics[key] = column[works.index(max(works))]
    return total


def _combine_key(
    key: str, reporters: list[NodeValues], reduction: Reduction, total: NodeValues
) -> None:
    pairs = [
        (value, child.weight(key))
        for child in reporters
        if (value := child.metrics[key]) is not None
    ]
    result, weight = _reduced(pairs, reduction)
    if result is not None:
        total.metrics[key] = result
    elif not pairs:
        total.metrics[key] = None
    if key in total.metrics and reduction is Reduction.MEAN and weight != total.work:
        total.kwork[key] = weight


def _reduced(pairs: list[tuple[float, float]], reduction: Reduction) -> tuple[float | None, float]:
    if not pairs:
        return None, 0.0
    if reduction is Reduction.MEAN:
        weight = sum(w for _, w in pairs if w > 0)
        if weight == 0:
            return None, 0.0
        return sum(v * w for v, w in pairs if w > 0) / weight, weight
    if reduction is Reduction.LAST:
        return max(pairs, key=lambda pair: pair[1])[0], 0.0
    values = [value for value, _ in pairs]
    if reduction is Reduction.SUM:
        return sum(values), 0.0
    return (max(values) if reduction is Reduction.MAX else min(values)), 0.0


def combine_res(children: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the resources of a node from those of its children; absent stays absent."""
    nodes = [child for child in children if child]
    result: dict[str, float] = {}
    for key, count_key in _WEIGHTED_RES.items():
        pairs = [(child[key], child.get(count_key, 1)) for child in nodes if key in child]
        weight = sum(w for _, w in pairs)
        if weight > 0:
            result[key] = sum(v * w for v, w in pairs) / weight
    for key in _PEAK_RES:
        peaks = [child[key] for child in nodes if key in child]
        if peaks:
            result[key] = max(peaks)
    for key in _SUMMED_RES:
        amounts = [child[key] for child in nodes if key in child]
        if amounts:
            result[key] = sum(amounts)
    return result
