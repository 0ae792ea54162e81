"""When a report between two epochs is due."""

from __future__ import annotations

import math

from flodl.core.errors import ConfigError

LEAST_PAUSE_S = 0.25
UNKNOWN_EVERY_S = 5.0


class ReportSchedule:
    """Spreads a number of reports evenly over an epoch's work, decided where work is complete.

    A jump over several due points gives one report, small windows add up, and two reports of a
    node are at least a quarter of a second apart: what is not reported yet stays in the sums.

    Args:
        reports: Reports per epoch; 0 for none.
        epoch_work: Work of an epoch, in any unit; ``None`` while it is unknown, which reports
            every five seconds.

    Raises:
        ConfigError: ``reports`` is negative.

    Examples:
        >>> schedule = ReportSchedule(4, 100)
        >>> [work for work in range(3, 101, 3) if schedule.is_due(work, now=work)]
        [27, 51, 75]
    """

    def __init__(self, reports: int, epoch_work: float | None) -> None:
        if reports < 0:
            raise ConfigError(f"reports_per_epoch={reports}: must be 0 (none) or more")
        self.reports = reports
        self._work = epoch_work
        self._fired = 0
        self._last: float | None = None

    def is_due(self, work: float, *, now: float) -> bool:
        """Return whether to report after ``work`` of the epoch, and count it as done if so.

        Args:
            work: Work of the epoch so far.
            now: Monotonic seconds.
        """
        if self.reports == 0:
            return False
        if self._work is None:
            if self._last is None:
                self._last = now
            if now - self._last < UNKNOWN_EVERY_S:
                return False
            self._last = now
            return True
        due = min(self.reports, math.floor(work * self.reports / self._work + 1e-9))
        if due <= self._fired:
            return False
        if self._last is not None and now - self._last < LEAST_PAUSE_S:
            return False
        self._fired, self._last = due, now
        return True
