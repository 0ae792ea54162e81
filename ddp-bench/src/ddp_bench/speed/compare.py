"""Times of all arms side by side, those whose losses differ left out."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from ddp_bench.errors import UsageError
from ddp_bench.speed.arms import BY_NAME, Clock, Policy, Side
from ddp_bench.speed.models import find
from ddp_bench.speed.results import RoundResult
from ddp_bench.statistics import Ratio, ratio_of

REFERENCE = "torch-eager"
_COMPILED_RTOL = 2e-3
_SAME = ("device", "dims", "precision")


class Comparison:
    """What was measured under one policy.

    Args:
        rows: Results of all rounds, models and arms.
        policy: Rows of other policies are left out.
        clock: What times are: those of the clock, or of the processor alone.
    """

    def __init__(self, rows: Iterable[RoundResult], policy: Policy, clock: Clock = "wall") -> None:
        self.policy = policy
        self.clock = clock
        chosen = [row for row in rows if row.sync_policy == policy]
        self.rows = sorted(chosen, key=lambda row: row.round)
        self._times: dict[tuple[str, str], list[float]] = {}
        for row in self.rows:
            ms = row.median_epoch_ms if clock == "wall" else row.median_cpu_ms
            if row.error is None and ms is not None:
                self._times.setdefault((row.name, row.label), []).append(ms)

    def models(self) -> list[str]:
        """Return the measured models, the ten before the extra ones."""
        names = {row.name for row in self.rows}
        return sorted(names, key=lambda name: (find(name).is_extra, find(name).tier, name))

    def ten(self) -> list[str]:
        """Return the measured models of the ten."""
        return [name for name in self.models() if not find(name).is_extra]

    def times(self, model: str, arm: str) -> list[float] | None:
        """Return an arm's time of each round, in ms an epoch; of its faster variant."""
        found = [
            times
            for (name, label), times in self._times.items()
            if name == model and label.partition(" ")[0] == arm
        ]
        return min(found, key=statistics.median) if found else None

    def best(self, model: str, side: Side) -> tuple[str, list[float]] | None:
        """Return the fastest arm of a side and its times."""
        arms = [arm.name for arm in BY_NAME.values() if arm.side == side]
        found = [(arm, times) for arm in arms if (times := self.times(model, arm)) is not None]
        return min(found, key=lambda item: statistics.median(item[1])) if found else None

    def ratio(self, model: str, ours: str, theirs: str) -> Ratio | None:
        """Return the ratio of two arms, where both were measured."""
        mine, other = self.times(model, ours), self.times(model, theirs)
        return None if mine is None or other is None else ratio_of(mine, other)

    def row(self, model: str, arm: str) -> RoundResult | None:
        """Return the last result of an arm, of its faster variant."""
        found = [r for r in self.rows if r.name == model and r.arm == arm and r.error is None]
        return min(found, key=lambda r: r.median_epoch_ms or 0.0) if found else None

    def errors(self) -> list[tuple[str, str, str]]:
        """Return model, arm and reason of everything that failed or was left out."""
        return sorted({(row.name, row.label, row.error) for row in self.rows if row.error})


def checked(rows: Sequence[RoundResult]) -> list[RoundResult]:
    """Return the rows; those whose losses are not the reference's get an error.

    Raises:
        UsageError: Rows of different sizes, precisions or devices lie in one folder.
    """
    for name in _SAME:
        found = sorted({getattr(row, name) for row in rows})
        if len(found) > 1:
            raise UsageError(
                f"results of {name} {' and '.join(found)} lie in one folder",
                hint="give another --output",
            )
    reference = {row.name: row for row in rows if row.arm == REFERENCE and row.error is None}
    return [_judged(row, reference.get(row.name)) for row in rows]


def _judged(row: RoundResult, reference: RoundResult | None) -> RoundResult:
    if row.error is not None:
        return row
    if row.capture is not None and row.capture.get("ok") is False and not find(row.name).is_extra:
        return dataclasses.replace(row, error=f"it ran in a lower mode: {row.capture['reason']}")
    if reference is None:
        return row
    rtol = max(find(row.name).loss_rtol, _COMPILED_RTOL if BY_NAME[row.arm].is_compiled else 0.0)
    pairs = list(zip(row.first_losses, reference.first_losses, strict=False))
    if not pairs and row.first_epoch_loss is not None:
        # the Trainer keeps the losses of single steps to itself: its mean of the epoch is compared
        assert reference.first_epoch_loss is not None, "a row without error has its first epoch"
        pairs = [(row.first_epoch_loss, reference.first_epoch_loss)]
    for step, (mine, other) in enumerate(pairs):
        if not abs(mine - other) <= rtol * abs(other):
            where = f"step {step}" if row.first_losses else "the first epoch"
            reason = f"void: loss {mine:.7g} in {where}, {REFERENCE} has {other:.7g}"
            return dataclasses.replace(row, error=reason)
    return row
