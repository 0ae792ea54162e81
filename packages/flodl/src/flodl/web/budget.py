"""How much of the machine viewers may take from a training that shares it."""

from __future__ import annotations

import time
from collections.abc import Callable

RATE = 30.0
BURST = 400.0
LONGEST_WAIT_S = 5.0
MOST_CONNECTIONS = 256

_COSTS = {"/snapshot": 100.0, "/timeline": 20.0, "/export.csv": 5.0, "/export.jsonl": 10.0}
_WIDE_COST = 2.0
_CONNECTION_COST = 1.0
_WIDE = frozenset({"/history", "/series", "/node", "/metrics"})


class RequestBudget:
    """Spreads requests in time once a burst of them is used up.

    A server in the process of a training takes its time from the training. An ordinary page
    never notices the budget; a flood of requests is answered at its rate. A run that has ended
    has no budget.

    Args:
        is_over: Whether the run has ended.
        rate: Requests per second in the long run.
        burst: Requests that may come at once.
        clock: Monotonic seconds; for tests.
    """

    def __init__(
        self,
        is_over: Callable[[], bool],
        *,
        rate: float = RATE,
        burst: float = BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_over = is_over
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._at = clock()
        self._is_released = False

    @property
    def is_released(self) -> bool:
        """Whether nobody has to wait any more."""
        return self._is_released or self._is_over()

    def release(self) -> None:
        """Let everybody go who waits: the server ends."""
        self._is_released = True

    @property
    def is_exhausted(self) -> bool:
        """Whether more would have to wait too long."""
        return not self._is_over() and self._refilled() <= -LONGEST_WAIT_S * self._rate

    def reserve(self, cost: float) -> float | None:
        """Take the cost of a request, and return the seconds it has to wait.

        ``None`` when that would be too long; then nothing is taken.
        """
        if self._is_over():
            return 0.0
        left = self._refilled() - cost
        wait = -left / self._rate
        if wait > LONGEST_WAIT_S:
            return None
        self._left = left
        return max(0.0, wait)

    def charge_connection(self) -> None:
        """Take the cost of a connection, which is there before anybody can refuse it."""
        if not self._is_over():
            # what noise costs is known only afterwards; honest requests pay it back with time
            floor = -LONGEST_WAIT_S * self._rate - 1
            self._left = max(floor, self._refilled() - _CONNECTION_COST)

    def _refilled(self) -> float:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left


def cost_of(path: str) -> float:
    """Return what a request to a path costs, in small requests."""
    if path.startswith("/static/"):
        return 0.25
    return _COSTS.get(path, _WIDE_COST if path in _WIDE else 1.0)
