"""A clock that is faster than that of the machine, so that deadlines take no time in tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from flodl.core.errors import ConfigError
from flodl.distributed.config.checks import is_number


class Clock:
    """Seconds that go by faster, and can be skipped.

    What ranks do takes as long as ever: only the deadlines of the controller come sooner.

    Args:
        rate: Seconds of this clock in one of the machine.
        source: Monotonic seconds of the machine.

    Raises:
        ConfigError: The rate is not a positive number.
    """

    def __init__(self, rate: float = 1.0, *, source: Callable[[], float] = time.monotonic) -> None:
        if not is_number(rate, above=0):
            raise ConfigError(f"rate={rate!r}: must be a positive number")
        self._rate, self._source = rate, source
        self._started = source()
        self._skipped = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the time now."""
        return self._started + (self._source() - self._started) * self._rate + self._skipped

    def skip(self, seconds: float) -> None:
        """Let so many seconds go by at once; any thread may call it.

        Raises:
            ConfigError: The seconds are negative.
        """
        if not is_number(seconds, above=-1e-9):
            raise ConfigError(f"skip({seconds!r}): time does not run backwards")
        with self._lock:
            self._skipped += seconds
