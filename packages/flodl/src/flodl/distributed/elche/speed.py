"""How fast one rank is: the mean of its last readings, a single spike ignored."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WINDOW = 5
SPIKE_RATIO = 3.0
MISSING_LIMIT = 5


@dataclass(kw_only=True, slots=True)
class Speed:
    """Readings of one rank, in milliseconds per batch."""

    readings: list[float] = field(default_factory=list)
    held_back: float | None = None
    """A reading far off that waits for the next one to agree."""
    missing: int = 0
    """Reports in a row without a reading."""
    prior: float | None = None
    """What is assumed before the first reading: that of a like device, say."""

    @property
    def ms(self) -> float | None:
        """Mean time of a batch; ``None`` while nothing is known."""
        if self.readings:
            return math.fsum(self.readings) / len(self.readings)
        return self.prior

    @property
    def is_measured(self) -> bool:
        """Whether there is a reading of the rank itself."""
        return bool(self.readings)

    def take(self, wall_ms: float, batches: int) -> None:
        """Take what a rank reported of one window; no batches or no time is a missing report."""
        if batches <= 0 or not math.isfinite(wall_ms) or wall_ms <= 0:
            self._miss()
            return
        self.missing = 0
        reading = wall_ms / batches
        direction = self._direction(reading)
        held, self.held_back = self.held_back, None
        if direction == 0:
            self._push(reading)
        elif held is not None and self._direction(held) == direction:
            self._push(held)
            self._push(reading)
        else:
            self.held_back = reading

    def _miss(self) -> None:
        self.missing += 1
        if self.missing >= MISSING_LIMIT:
            self.readings.clear()
            self.held_back = None
            self.prior = None

    def _direction(self, reading: float) -> int:
        """Return 1 or -1 for a reading far above or below a full window's median, else 0."""
        if len(self.readings) < WINDOW:
            return 0
        median = statistics.median(self.readings)
        return (reading > SPIKE_RATIO * median) - (reading < median / SPIKE_RATIO)

    def _push(self, reading: float) -> None:
        self.readings.append(reading)
        del self.readings[:-WINDOW]

    def to_state(self, *, exact: bool) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes: every reading, or their mean."""
        if not exact:
            return {"readings": [], "prior": self.ms}
        return dataclasses.asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Speed:
        """Return readings as ``to_state`` described them."""
        return cls(**state)


def reading_times(
    wall_ms: Sequence[float], delivered_ms: Sequence[float | None], batches: Sequence[int]
) -> list[float]:
    """Return the time of each rank's window on one scale.

    Delivered time where every rank that worked has it, else compute time for all: two scales in
    one window would make a rank look faster than it is.
    """
    active = [rank for rank, count in enumerate(batches) if count > 0]
    if active and all(delivered_ms[rank] is not None for rank in active):
        return [0.0 if value is None else value for value in delivered_ms]
    return list(wall_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSpec:
    """What is known of a device before it has run anything."""

    vendor: str
    generation: int
    """Of the architecture, such as 9 for compute capability 9.0."""
    vram_gb: float

    @property
    def score(self) -> float:
        """A rough speed; only its order is used."""
        return self.generation * 10 + self.vram_gb


def slowest_by_spec(specs: Sequence[DeviceSpec | None]) -> int | None:
    """Return the rank with the lowest score.

    ``None`` where a device could not be asked, or where devices of two vendors do not compare.
    """
    known = [spec for spec in specs if spec is not None]
    if len(known) < len(specs) or len({spec.vendor for spec in known}) != 1:
        return None
    return min(range(len(known)), key=lambda rank: known[rank].score)


def prior_of(
    device: str, devices: Mapping[str, str], speeds: Mapping[str, float | None]
) -> float | None:
    """Return the smoothed time of members with the same device name, their mean.

    Args:
        device: Name of the newcomer's device.
        devices: Device name of each member.
        speeds: Smoothed milliseconds of each member, ``None`` while unknown.
    """
    like = [
        ms
        for member, name in devices.items()
        if name == device and (ms := speeds.get(member)) is not None
    ]
    return math.fsum(like) / len(like) if like else None
