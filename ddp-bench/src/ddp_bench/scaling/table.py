"""All runs of a sitting, by scenario and arm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddp_bench.scaling.measure import RunFigures


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The runs of one arm in one scenario, by seed."""

    runs: tuple[RunFigures, ...]

    @property
    def arm(self) -> str:
        """Name of the arm."""
        return self.runs[0].arm

    @property
    def label(self) -> str:
        """The arm, with its period where it has one."""
        return self.runs[0].label

    @property
    def rates(self) -> list[float]:
        """Samples per second of each run."""
        return [run.samples_per_s for run in self.runs]

    @property
    def is_reached(self) -> bool:
        """Whether the median run came to the loss."""
        return math.isfinite(statistics.median(self.times(censored=math.inf)))

    def times(self, *, censored: float | None = None) -> list[float]:
        """Return the seconds to the loss of each run.

        Args:
            censored: What a run counts that did not come to it; ``None``: its whole length, which
                is less than it would have taken.
        """
        missed = [run.run_s if censored is None else censored for run in self.runs]
        return [
            late if run.time_to_loss is None else run.time_to_loss
            for run, late in zip(self.runs, missed, strict=True)
        ]


class Table:
    """What was measured.

    Args:
        runs: Of all scenarios, arms and seeds.
    """

    def __init__(self, runs: Iterable[RunFigures]) -> None:
        self.runs: tuple[RunFigures, ...] = tuple(runs)
        self.scenarios: list[str] = list(dict.fromkeys(run.scenario for run in self.runs))

    def rows(self, scenario: str) -> list[Row]:
        """Return the rows of a scenario, in the order of their first runs."""
        found: dict[str, list[RunFigures]] = {}
        for run in self.runs:
            if run.scenario == scenario:
                found.setdefault(run.label, []).append(run)
        return [Row(runs=tuple(sorted(each, key=_seed))) for each in found.values()]

    def best(self, scenario: str, arm: str) -> Row | None:
        """Return the row of an arm; of several periods the one with the lowest median time.

        Between periods that did not come to the loss, the lowest loss at the end decides.
        """
        rows = [row for row in self.rows(scenario) if row.arm == arm]
        return min(rows, key=_merit, default=None)


def _seed(run: RunFigures) -> int:
    return run.seed


def _merit(row: Row) -> tuple[float, float]:
    losses: Sequence[float] = [run.final_loss for run in row.runs]
    return statistics.median(row.times(censored=math.inf)), statistics.median(losses)
