"""Ranks that are slow on purpose: every step sleeps until it has lasted as long as it should."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ddp_bench.errors import UsageError

Pattern = Literal["constant", "change", "jitter", "stall"]

JITTER = 0.5
STALL_S = 2.0
STALL_EVERY_S = 30.0
FIRST_STALL_S = 5.0
"""When the first stall comes, so that short runs have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowRank:
    """One rank whose steps last ``factor`` times as long as those of the others.

    Raises:
        UsageError: The factor is below 1.
    """

    rank: int = 1
    factor: float = 1.0
    pattern: Pattern = "constant"
    """``change``: as fast as the others until ``half_s``; ``jitter``: each step is up to half as
    long again or half as short; ``stall``: two seconds of nothing every half minute."""
    half_s: float = 0.0
    """Seconds into the run at which ``change`` comes."""

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise UsageError(f"factor {self.factor:g}: a slow rank takes 1 or more times as long")

    def factor_at(self, elapsed_s: float, draw: float) -> float:
        """Return how many times as long as the base a step of the slow rank lasts.

        Args:
            elapsed_s: Seconds since its first step.
            draw: A number from 0 to 1, for ``jitter``.
        """
        if self.pattern == "change" and elapsed_s < self.half_s:
            return 1.0
        if self.pattern == "jitter":
            return self.factor * (1 + JITTER * (2 * draw - 1))
        return self.factor


@dataclass(frozen=True, kw_only=True, slots=True)
class Paced:
    """One step as it was paced."""

    started: float
    padded: float
    """When the sleep was over; what follows, backward and optimizer, takes ``rest_s`` by plan."""
    wanted: float
    """Seconds that the step was to last, rest included."""


class Pacer:
    """Makes each step of one rank last as long as it should, by sleeping and never by working.

    A step calls :meth:`begin` first and :meth:`pad` after its forward pass: what it waits for in
    the backward pass or the average comes on top, as with a device that is slow.

    Args:
        slow: Which rank is slow, and how.
        rank: The rank whose steps these are.
        base_s: What a step of the others lasts.
        rest_s: What backward and optimizer of a step take, measured beforehand.
        seed: Of ``jitter``.
        clock: Monotonic seconds, the same for all processes of the machine.
        sleep: Waits.
    """

    def __init__(
        self,
        slow: SlowRank,
        rank: int,
        *,
        base_s: float,
        rest_s: float,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._slow = slow
        self._is_slow = rank == slow.rank
        self._base_s, self._rest_s = base_s, rest_s
        self._draw = random.Random(seed)  # noqa: S311 - resampling keeps no secret
        self._clock, self._sleep = clock, sleep
        self._first: float | None = None
        self._started = 0.0
        self._next_stall_s = FIRST_STALL_S

    def begin(self) -> float:
        """Note that a step begins, and return when."""
        self._started = self._clock()
        if self._first is None:
            self._first = self._started
        return self._started

    def pad(self) -> Paced:
        """Sleep until only the rest of the step is left, and return what became of it."""
        assert self._first is not None
        wanted = self._base_s
        if self._is_slow:
            elapsed = self._started - self._first
            wanted = self._base_s * self._slow.factor_at(elapsed, self._draw.random())
            wanted += self._stall(elapsed)
        left = self._started + wanted - self._rest_s - self._clock()
        if left > 0:
            self._sleep(left)
        return Paced(started=self._started, padded=self._clock(), wanted=wanted)

    def _stall(self, elapsed_s: float) -> float:
        if self._slow.pattern != "stall" or elapsed_s < self._next_stall_s:
            return 0.0
        self._next_stall_s += STALL_EVERY_S
        return STALL_S
