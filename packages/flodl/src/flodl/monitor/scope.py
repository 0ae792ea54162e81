"""One epoch of a loop that its user drives: steps in, reports and the epoch's metrics out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flodl.monitor.sums import PendingSums, ScalarSums
from flodl.records.cadence import ReportSchedule


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """Means over some steps of an epoch."""

    means: dict[str, float]
    samples: float
    seconds: float
    step_in_epoch: int


@dataclass(frozen=True, slots=True)
class _Part:
    sums: PendingSums
    samples: float
    seconds: float
    step_in_epoch: int


class EpochScope:
    """Takes in the steps of one epoch; made by ``Monitor.epoch`` and ``Monitor.follow``.

    Values on a device are summed there, and read at reports without waiting for it.

    Args:
        schedule: When reports are due, in steps.
        report: Called with each report.
        clock: Monotonic seconds.
        on_end: Called once all steps are in.
    """

    def __init__(
        self,
        schedule: ReportSchedule,
        report: Callable[[StepReport], None],
        clock: Callable[[], float],
        *,
        on_end: Callable[[EpochScope], None],
    ) -> None:
        self._schedule = schedule
        self._report = report
        self._clock = clock
        self._on_end = on_end
        self._sums = ScalarSums()
        self._totals: dict[str, tuple[float, int]] = {}
        self._parts: list[_Part] = []
        self._part_samples = 0.0
        self._part_started = clock()
        self.steps = 0
        """Steps so far."""
        self.samples = 0.0
        """Samples so far."""
        self._extras: dict[str, Any] = {}

    def step(self, *, samples: float = 1, **scalars: Any) -> None:
        """Take in one step.

        Args:
            samples: Samples of the step.
            scalars: Its values by name, numbers or 0-d tensors.

        Raises:
            MetricTypeError: A value is no single number.
        """
        self._sums.add(scalars)
        self.steps += 1
        self.samples += samples
        self._part_samples += samples
        if self._schedule.reports and self._schedule.is_due(self.steps, now=self._clock()):
            self._end_part()
        if self._parts and self._parts[0].sums.is_ready:
            self._tell(self._parts.pop(0))

    def step_of(self, loss: float, samples: int) -> None:
        """Take in one step by its loss, a number."""
        self.step(samples=samples, loss=loss)

    def record(self, **metrics: Any) -> None:
        """Add metrics of the epoch as a whole, such as an evaluation's."""
        self._extras.update(metrics)

    def finish(self) -> dict[str, Any]:
        """Return the means over all steps, then what was recorded; waits for the device."""
        for part in self._parts:
            self._tell(part)
        self._parts.clear()
        self._total(self._sums.begin_read().take())
        self._on_end(self)
        means = {name: total / count for name, (total, count) in self._totals.items()}
        return {**means, **self._extras}

    def _end_part(self) -> None:
        now = self._clock()
        seconds, self._part_started = now - self._part_started, now
        samples, self._part_samples = self._part_samples, 0.0
        self._parts.append(_Part(self._sums.begin_read(), samples, seconds, self.steps))

    def _tell(self, part: _Part) -> None:
        sums = part.sums.take()
        self._total(sums)
        self._report(
            StepReport(
                means={name: total / count for name, (total, count) in sums.items()},
                samples=part.samples,
                seconds=part.seconds,
                step_in_epoch=part.step_in_epoch,
            )
        )

    def _total(self, sums: dict[str, tuple[float, int]]) -> None:
        for name, (total, count) in sums.items():
            before, times = self._totals.get(name, (0.0, 0))
            self._totals[name] = (before + total, times + count)
