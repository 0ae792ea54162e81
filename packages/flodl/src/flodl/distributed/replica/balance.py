"""Which part of a batch each device takes, so that all take as long: plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from flodl.core.errors import ConfigError
from flodl.data.partition import chunk_sizes
from flodl.distributed.elche.partition import equal_split

ALPHA = 0.3
CALIBRATION_STEPS = 10
STEPS_BETWEEN = 50
FLOOR = 0.05


def floored_shares(speeds: Sequence[float], floor: float = FLOOR) -> tuple[float, ...]:
    """Return each speed's share of the sum, none below ``floor``; together they are 1.

    What slow devices lack to the floor is taken from the others in proportion.

    Raises:
        ConfigError: There are too many devices for that floor, or a speed is not positive.
    """
    if len(speeds) * floor > 1:
        raise ConfigError(
            f"{len(speeds)} devices with at least {floor:.0%} of each batch: more than the whole",
            hint=f"use at most {math.floor(1 / floor)} devices in one process",
        )
    if not speeds or not all(math.isfinite(speed) and speed > 0 for speed in speeds):
        raise ConfigError(f"speeds={list(speeds)}: expected a positive number for each device")
    raised: set[int] = set()
    while True:
        free = math.fsum(speed for k, speed in enumerate(speeds) if k not in raised)
        rest = 1 - floor * len(raised)
        shares = [floor if k in raised else s / free * rest for k, s in enumerate(speeds)]
        below = {k for k, share in enumerate(shares) if share < floor}
        if not below:
            break
        raised |= below
    total = math.fsum(shares)
    return tuple(share / total for share in shares)


@final
class Balance:
    """Follows how fast devices are, and splits batches by that.

    Ten steps split equally; then shares are those of the throughput, and again every fifty steps.

    Args:
        world: Number of devices.
        holds: Whether the split stays equal, because rows belong to their devices.

    Raises:
        ConfigError: There are too many devices for each to have the least share.
    """

    def __init__(self, world: int, *, holds: bool = False) -> None:
        floored_shares([1.0] * world)
        self.ratios: tuple[float, ...] = (1 / world,) * world
        self.throughput: list[float] = [0.0] * world
        """Samples per millisecond of each device, smoothed; 0 before the first measurement."""
        self._is_equal = True
        self._holds = holds
        self._steps = 0

    def take(self, device: int, samples: int, ms: float) -> None:
        """Take a measurement of one device."""
        if samples <= 0 or not ms > 0:
            return
        speed, known = samples / ms, self.throughput[device]
        self.throughput[device] = speed if known == 0 else known + ALPHA * (speed - known)

    def step(self) -> None:
        """Count a step, and set shares anew by the throughput when it is time."""
        self._steps += 1
        since = self._steps - CALIBRATION_STEPS
        is_due = not self._holds and since >= 0 and since % STEPS_BETWEEN == 0
        if is_due and all(speed > 0 for speed in self.throughput):
            self.ratios = floored_shares(self.throughput)
            self._is_equal = False

    def sizes(self, rows: int) -> list[int]:
        """Return how many rows of a batch each device takes: one or more, where there are so many.

        The sum is exact. Fewer rows than devices go to the first ones.
        """
        world = len(self.ratios)
        if self._is_equal or rows < world:
            return equal_split(rows, world)
        return chunk_sizes(rows, self.ratios)
