"""What a rank tells of itself with each window: sums of its scalars, its times, its device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flodl.core.resources import GpuSnapshot, ResourceSample, Spread
from flodl.records.errors import TelemetryError
from flodl.records.record import MAX_KEY_CHARS
from flodl.records.rollup import RES_KEYS
from flodl.records.totals import NONFINITE, KeySums, WorkTotals

MAX_BYTES = 16 << 10
_FIXED_BYTES = 2048
_KEY_BYTES = 24
_MOST_NONFINITE_BYTES = 48
_SPREAD_KEYS = {
    "gpu_util": "util_percent",
    "vram_alloc": "vram_allocated_bytes",
    "power_w": "power_w",
    "temp_c": "temp_c",
}

Span = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTelemetry:
    """One rank's numbers since it told the last time; made by :class:`TelemetrySums`."""

    rank: int
    """The member's number, which stays when ranks are numbered anew."""
    step: int | None = None
    """Global optimizer step at the end."""
    epoch: int | None = None
    """0-based epoch that the work belongs to."""
    epoch_complete: bool = False
    work: float = 0
    """Samples."""
    sums: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Sum and number of the values of each key."""
    nonfinite: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds: ``compute_only_ms``, ``data_starve``."""
    res: Mapping[str, float | Span] = field(default_factory=dict)
    """The device since the last time: least, mean and most, or one number."""
    host_res: Mapping[str, float] = field(default_factory=dict)
    """CPU and memory of the host, from the one rank that tells them."""
    label: str | None = None
    device: int | None = None
    """Physical index."""
    left_out: int = 0
    """Keys that had no room."""

    def body(self) -> dict[str, Any]:
        """Return plain values for the wire, at most 16 KiB of them; what is absent is left out."""
        sums, nonfinite, left_out = self._that_fit()
        fields: dict[str, Any] = {
            "rank": self.rank,
            "step": self.step,
            "epoch": self.epoch,
            "epoch_complete": self.epoch_complete or None,
            "work": self.work,
            "sums": {key: list(pair) for key, pair in sums.items()},
            "nonfinite": {key: dict(kinds) for key, kinds in nonfinite.items()},
            "timing": dict(self.timing),
            "res": {k: list(v) if isinstance(v, tuple) else v for k, v in self.res.items()},
            "host_res": dict(self.host_res),
            "label": None if self.label is None else self.label[:MAX_KEY_CHARS],
            "device": self.device,
            "left_out": (self.left_out + left_out) or None,
        }
        return {name: value for name, value in fields.items() if value not in (None, {})}

    def sample(self) -> ResourceSample | None:
        """Return its resources as a sample for a timeline, ``None`` where it has none."""
        if not self.res and not self.host_res:
            return None
        gpu = GpuSnapshot(
            device_index=self.device or 0,
            name=self.label or "",
            util_percent=self._mean("gpu_util"),
            vram_allocated_bytes=_whole(self._mean("vram_alloc")),
            vram_total_bytes=_whole(self._mean("vram_total")),
            power_w=self._mean("power_w"),
            temp_c=self._mean("temp_c"),
        )
        return ResourceSample(
            cpu_percent=self.host_res.get("cpu"),
            ram_used_bytes=_whole(self.host_res.get("ram_used")),
            ram_total_bytes=_whole(self.host_res.get("ram_total")),
            cpu_count=_whole(self.host_res.get("cpus")),
            gpus=(gpu,) if self.res else (),
        )

    def _mean(self, key: str) -> float | None:
        value = self.res.get(key)
        return value[1] if isinstance(value, tuple) else value

    @classmethod
    def from_body(cls, body: object) -> RankTelemetry:
        """Return what was sent; fields that are not known are passed over.

        Raises:
            TelemetryError: It does not have the form of :meth:`body`.
        """
        if not isinstance(body, Mapping):
            raise TelemetryError(f"telemetry is a {type(body).__name__}, not a map")
        read = _BodyReader(body)
        rank = read.integer("rank")
        if rank is None:
            raise TelemetryError("telemetry names no rank")
        return cls(
            rank=rank,
            step=read.integer("step"),
            epoch=read.integer("epoch"),
            epoch_complete=body.get("epoch_complete") is True,
            work=read.work(),
            sums=read.map("sums", _sum_pair),
            nonfinite=read.map("nonfinite", _kinds),
            timing=read.map("timing", _number),
            res=read.map("res", _span),
            host_res=read.map("host_res", _number),
            label=read.text("label"),
            device=read.integer("device"),
            left_out=read.integer("left_out") or 0,
        )

    def _that_fit(self) -> tuple[KeySums, Mapping[str, Mapping[str, int]], int]:
        room = MAX_BYTES - _FIXED_BYTES
        sums: dict[str, tuple[float, int]] = {}
        nonfinite: dict[str, Mapping[str, int]] = {}
        for key, kinds in self.nonfinite.items():
            room -= len(key.encode("utf-8", "replace")) + _MOST_NONFINITE_BYTES
            if room >= 0:
                nonfinite[key] = kinds
        for key, pair in self.sums.items():
            room -= len(key.encode("utf-8", "replace")) + _KEY_BYTES
            if room >= 0:
                sums[key] = pair
        fitting = len(sums) + len(nonfinite)
        return sums, nonfinite, len(self.sums) + len(self.nonfinite) - fitting


class TelemetrySums:
    """Sums up a rank's work between two reports. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._totals = WorkTotals()

    def add(
        self,
        sums: KeySums,
        *,
        work: float,
        compute_only_ms: float | None = None,
        data_starve: float | None = None,
    ) -> None:
        """Add what some work amounted to.

        Args:
            sums: Sum and number of the values of each key, as ``ScalarScope.drain`` gives them.
            work: Samples.
            compute_only_ms: Time of a step without waiting for data.
            data_starve: Time of a step spent waiting for data.
        """
        given = {"compute_only_ms": compute_only_ms, "data_starve": data_starve}
        timing = {name: value for name, value in given.items() if value is not None}
        self._totals.add(sums, work, timing)

    def take(
        self,
        *,
        rank: int,
        step: int | None = None,
        epoch: int | None = None,
        epoch_complete: bool = False,
        res: Mapping[str, float | Span] | None = None,
        host_res: Mapping[str, float] | None = None,
        label: str | None = None,
        device: int | None = None,
    ) -> RankTelemetry:
        """Return the sums, and start afresh; the arguments are fields of the answer."""
        totals, self._totals = self._totals, WorkTotals()
        times = {name: total / w for name, (total, w) in totals.timing.items() if w}
        return RankTelemetry(
            rank=rank,
            step=step,
            epoch=epoch,
            epoch_complete=epoch_complete,
            work=totals.work,
            sums=totals.sums,
            nonfinite=totals.nonfinite,
            timing=times,
            res=res or {},
            host_res=host_res or {},
            label=label,
            device=device,
        )


def rank_resources(
    sample: ResourceSample, spreads: Mapping[int, Mapping[str, Spread]], *, device: int
) -> dict[str, float | Span]:
    """Return the ``res`` of a rank's telemetry from what a ``ResourceReader`` has read.

    Args:
        sample: Means since the last reading.
        spreads: Extremes and means by physical index and field.
        device: Physical index of the rank's device; others are passed over.
    """
    seen = spreads.get(device, {})
    res: dict[str, float | Span] = {
        key: (spread.low, spread.mean, spread.high)
        for key, name in _SPREAD_KEYS.items()
        if (spread := seen.get(name)) is not None
    }
    for gpu in sample.gpus:
        if gpu.device_index == device and gpu.vram_total_bytes is not None:
            res["vram_total"] = gpu.vram_total_bytes
    return res


class _BodyReader:
    def __init__(self, body: Mapping[Any, Any]) -> None:
        self._body = body

    def integer(self, name: str) -> int | None:
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TelemetryError(f"telemetry: {name}={value!r:.60} is no whole number from 0 up")
        return value

    def work(self) -> float:
        work = _number("work", self._body.get("work", 0))
        if work < 0:
            raise TelemetryError(f"telemetry: work={work} is negative")
        return work

    def text(self, name: str) -> str | None:
        value = self._body.get(name)
        if value is not None and not isinstance(value, str):
            raise TelemetryError(f"telemetry: {name}={value!r:.60} is no text")
        return None if value is None else value[:MAX_KEY_CHARS]

    def map(self, name: str, check: Callable[[str, Any], Any]) -> dict[str, Any]:
        value = self._body.get(name, {})
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TelemetryError(f"telemetry: {name} is no map with names as keys")
        return {key: check(f"{name}.{key:.60}", held) for key, held in value.items()}


def _number(where: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or abs(value) > sys.float_info.max or value != value:  # noqa: PLR0124 (NaN)
        raise TelemetryError(f"telemetry: {where}={value!r:.60} is no finite number")
    number: float = value
    return number


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _sum_pair(where: str, value: Any) -> tuple[float, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise TelemetryError(f"telemetry: {where}={value!r:.60} is no pair of sum and number")
    total, count = _number(where, value[0]), value[1]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise TelemetryError(f"telemetry: {where} counts {count!r:.60} values")
    return total, count


def _kinds(where: str, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value.keys() <= set(NONFINITE):
        raise TelemetryError(f"telemetry: {where} counts other than {', '.join(NONFINITE)}")
    return {kind: int(_number(where, count)) for kind, count in value.items()}


def _span(where: str, value: Any) -> float | Span:
    if where.rpartition(".")[2] not in RES_KEYS:
        raise TelemetryError(f"telemetry: {where} is no resource; {', '.join(sorted(RES_KEYS))}")
    if not isinstance(value, (list, tuple)):
        return _number(where, value)
    if len(value) != 3:
        raise TelemetryError(f"telemetry: {where}={value!r:.60} is no least, mean and most")
    low, mean, high = (_number(where, part) for part in value)
    return low, mean, high
