"""What must hold of the figures: ratios against what ran beside them, never times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ddp_bench.scaling.measure import FACTOR_TOLERANCE
from ddp_bench.scaling.scenario import ASYNC, CADENCE, DILOCO, REFERENCE, SYNC
from ddp_bench.scaling.table import Row, Table
from ddp_bench.statistics import Ratio, ratio_of

OVERHEAD = 0.10 + 0.03


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One bar: what was found, what is asked, and whether it holds.

    Medians over the seeds are judged; the interval is told beside them.
    """

    scenario: str
    bar: str
    found: Ratio
    most: float | None = None
    least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        value = self.found.value
        return (self.most is None or value <= self.most) and (
            self.least is None or value >= self.least
        )


def judge(table: Table) -> list[Verdict]:
    """Return the verdicts on all scenarios that were run."""
    found: list[Verdict] = []
    for scenario in table.scenarios:
        rows = _Rows(table, scenario)
        found += _JUDGES[scenario](rows) if scenario in _JUDGES else []
        found += rows.any()
    return found


class _Rows:
    def __init__(self, table: Table, scenario: str) -> None:
        self._table, self._scenario = table, scenario

    def of(self, *arms: str) -> list[Row]:
        """Return the rows of those arms that were run."""
        return [row for arm in arms if (row := self._table.best(self._scenario, arm)) is not None]

    def verdict(
        self, bar: str, found: Ratio, *, most: float | None = None, least: float | None = None
    ) -> Verdict:
        return Verdict(scenario=self._scenario, bar=bar, found=found, most=most, least=least)

    def times(self, ours: Sequence[str], theirs: str, most: float) -> list[Verdict]:
        """Compare times to the loss; one that is not reached counts as the whole run of theirs."""
        return [
            self.verdict(
                f"time to loss, {mine.label} / {other.label}",
                ratio_of(mine.times(censored=math.inf), other.times()),
                most=most,
            )
            for mine in self.of(*ours)
            for other in self.of(theirs)
        ]

    def gains(self, ours: Sequence[str], least: float) -> list[Verdict]:
        """Compare throughput with what equal shares allow."""
        return [
            self.verdict(
                f"throughput over {other.label}, part of the ideal gain, {mine.label}",
                _scaled(ratio_of(mine.rates, other.rates), 1 / _ideal_gain(mine)),
                least=least,
            )
            for mine in self.of(*ours)
            for other in self.of(REFERENCE)
        ]

    def each(
        self, arms: Sequence[str], bar: str, values: str, *, most: float | None = None
    ) -> list[Verdict]:
        """Judge a figure of single arms."""
        return [
            self.verdict(f"{bar}, {row.label}", _spread(found), most=most)
            for row in self.of(*arms)
            if (found := [v for v in (getattr(run, values) for run in row.runs) if v is not None])
        ]

    def any(self) -> list[Verdict]:
        """Judge what holds in every scenario."""
        off = max(run.pace_error for row in self._table.rows(self._scenario) for run in row.runs)
        return [
            self.verdict("steps off their pace, the worst", _single(off), most=FACTOR_TOLERANCE),
            *self.each(CADENCE, "idle share of the fast rank", "fast_idle", most=0.10),
            *self.each(CADENCE, "part of the time that averages take", "overhead", most=OVERHEAD),
            *(
                self.verdict(
                    f"every sample accounted for, {row.label}",
                    _single(float(all(run.is_exact for run in row.runs))),
                    least=1.0,
                )
                for row in self.of(*SYNC, *CADENCE, ASYNC, DILOCO)
            ),
        ]


def _equal(rows: _Rows) -> list[Verdict]:
    return rows.times((*SYNC, *CADENCE), REFERENCE, 1.05)


def _slow(rows: _Rows) -> list[Verdict]:
    ours = (*CADENCE, ASYNC)
    return [
        *rows.times(ours, REFERENCE, 0.75),
        *rows.gains(ours, 0.90),
        *rows.times(ours, "torchft-localsgd", 0.85),
        *rows.times((DILOCO,), "torchft-diloco", 0.90),
    ]


def _link(rows: _Rows) -> list[Verdict]:
    return [
        *rows.times(CADENCE, REFERENCE, 0.50),
        *rows.times(CADENCE, "torchft-diloco", 1.05),
    ]


def _change(rows: _Rows) -> list[Verdict]:
    return rows.each(
        (*CADENCE, ASYNC), "share after five averages, off the ideal", "share_error", most=0.10
    )


def _stall(rows: _Rows) -> list[Verdict]:
    return rows.times((*CADENCE, ASYNC), REFERENCE, 0.90)


_JUDGES = {"equal": _equal, "slow": _slow, "link": _link, "change": _change, "stall": _stall}


def _ideal_gain(row: Row) -> float:
    """Return what two ranks gain that are never idle, over two with equal shares."""
    return (row.runs[0].wanted_factor + 1) / 2


def _single(value: float) -> Ratio:
    return Ratio(value=value, low=value, high=value)


def _scaled(ratio: Ratio, by: float) -> Ratio:
    return Ratio(value=ratio.value * by, low=ratio.low * by, high=ratio.high * by)


def _spread(values: Sequence[float]) -> Ratio:
    return Ratio(value=statistics.median(values), low=min(values), high=max(values))
