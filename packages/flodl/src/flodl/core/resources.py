"""What was measured about a host and its devices. What could not be measured is ``None``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from flodl.core.units import format_bytes

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSnapshot:
    """One GPU at one moment, or over one interval."""

    device_index: int
    """Physical index, as the driver counts."""
    name: str
    uuid: str | None = None
    util_percent: float | None = None
    vram_allocated_bytes: int | None = None
    """What this process holds of it."""
    vram_used_bytes: int | None = None
    """What all processes hold of it."""
    vram_total_bytes: int | None = None
    power_w: float | None = None
    temp_c: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceSample:
    """A host and the devices of a run on it."""

    cpu_percent: float | None = None
    """Share of the CPUs that this process may use."""
    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    cpu_count: int | None = None
    gpus: tuple[GpuSnapshot, ...] = ()

    @property
    def gpu_util_percent(self) -> float | None:
        """Mean utilization over the devices that tell theirs, idle ones included."""
        known = [gpu.util_percent for gpu in self.gpus if gpu.util_percent is not None]
        return sum(known) / len(known) if known else None

    @property
    def vram_allocated_bytes(self) -> int | None:
        """Sum over the devices."""
        return _sum(gpu.vram_allocated_bytes for gpu in self.gpus)

    @property
    def vram_total_bytes(self) -> int | None:
        """Sum over the devices."""
        return _sum(gpu.vram_total_bytes for gpu in self.gpus)

    @property
    def spill_bytes(self) -> int:
        """Bytes allocated beyond the devices' own memory."""
        allocated, total = self.vram_allocated_bytes, self.vram_total_bytes
        return 0 if allocated is None or total is None else max(0, allocated - total)

    def summary(self) -> str:
        """Return the sample in one line, without what was not measured."""
        parts = []
        if self.cpu_percent is not None:
            parts.append(f"CPU {self.cpu_percent:.0f}%")
        if self.ram_used_bytes is not None and self.ram_total_bytes is not None:
            parts.append(_share("RAM", self.ram_used_bytes, self.ram_total_bytes))
        if self.gpu_util_percent is not None:
            parts.append(f"GPU {self.gpu_util_percent:.0f}%")
        if self.vram_allocated_bytes is not None and self.vram_total_bytes is not None:
            parts.append(_share("VRAM", self.vram_allocated_bytes, self.vram_total_bytes))
        return " | ".join(parts)


class Envelope:
    """Extremes and mean of what was added since it was last read."""

    __slots__ = ("_high", "_low", "_n", "_sum")

    def __init__(self) -> None:
        self._n, self._sum = 0, 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float | None) -> None:
        """Take in a value; what is absent or not finite does not count."""
        if value is None or not math.isfinite(value):
            return
        self._n += 1
        self._sum += value
        self._low = min(self._low, value)
        self._high = max(self._high, value)

    def read(self) -> Spread | None:
        """Return what was seen since the last reading, ``None`` if nothing was; start afresh."""
        if self._n == 0:
            return None
        seen = Spread(self._low, self._sum / self._n, self._high, self._n)
        self._n, self._sum = 0, 0.0
        self._low, self._high = math.inf, -math.inf
        return seen


@dataclass(frozen=True, slots=True)
class Spread:
    """Extremes and mean of a number of values."""

    low: float
    mean: float
    high: float
    count: int


def sample_body(sample: ResourceSample) -> dict[str, Any]:
    """Return the ``res`` fields of a record for a sample; what was not measured is left out."""
    totals: dict[str, Any] = {
        "gpu_util": sample.gpu_util_percent,
        "vram_alloc": sample.vram_allocated_bytes,
        "vram_total": sample.vram_total_bytes,
        "power_w": _sum(gpu.power_w for gpu in sample.gpus),
        "temp_c": max((g.temp_c for g in sample.gpus if g.temp_c is not None), default=None),
        "gpus": len(sample.gpus) or None,
    }
    return {key: value for key, value in totals.items() if value is not None}


def host_body(sample: ResourceSample) -> dict[str, Any]:
    """Return the ``res`` fields of a host for a sample; what was not measured is left out."""
    fields = {
        "cpu": sample.cpu_percent,
        "ram_used": sample.ram_used_bytes,
        "ram_total": sample.ram_total_bytes,
        "cpus": sample.cpu_count,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    total = known[0]
    for value in known[1:]:
        total += value
    return total


def _share(name: str, used: int, total: int) -> str:
    return f"{name} {format_bytes(used)}/{format_bytes(total)}"
