"""Samples and events of a run at high rate, in columns; idle gaps and their causes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.records.record import clean_text

MAX_SAMPLES = 500_000
MAX_EVENTS = 100_000
IDLE_PERCENT = 5.0
IDLE_MS = 500
_CAUSE_REACH_MS = 500
_CAUSES = (
    ("epoch boundary", ("epoch_start", "epoch_end")),
    ("CPU averaging", ("cpu_avg_start", "cpu_avg_end")),
    ("sync", ("sync_start", "sync_end")),
    ("evaluation", ("eval",)),
    ("checkpoint", ("checkpoint",)),
    ("capture", ("capture",)),
)
_HOST_COLUMNS = ("cpu", "ram_used", "ram_total")
GPU_COLUMNS = ("u", "va", "vu", "vt")
"""Utilization in percent; bytes allocated by the process, used by all, and there in total."""


class TimelineEvent(NamedTuple):
    """Something that happened at one moment."""

    t_ms: int
    """Milliseconds since the start of the timeline."""
    kind: str
    fields: Mapping[str, Any]

    def body(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"t": self.t_ms, "k": self.kind, **self.fields}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineSummary:
    """What a timeline amounts to."""

    total_ms: int
    sample_count: int
    event_count: int
    gpu_idle_pct: tuple[float | None, ...]
    """Per device, the share of samples below 5 %; ``None`` where none told its utilization."""
    sync_count: int
    avg_sync_ms: float | None
    cpu_avg_count: int
    avg_cpu_avg_ms: float | None
    anchor_change_count: int
    throttle_count: int


class SampleColumns:
    """Samples in columns of equal length; a value that was not measured is NaN.

    Attributes:
        t: Milliseconds since the start of the timeline, ascending.
        columns: Values of the host by name.
        gpus: Values of each GPU by name, by physical index.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.t = array("q")
        self.columns: dict[str, array[float]] = {name: array("d") for name in names}
        self.gpus: dict[int, dict[str, array[float]]] = {}

    def add(
        self, t_ms: int, values: Mapping[str, float | None], gpus: Sequence[GpuSnapshot]
    ) -> None:
        """Append one sample."""
        rows = len(self.t)
        self.t.append(t_ms)
        for name, column in self.columns.items():
            value = values.get(name)
            column.append(math.nan if value is None else value)
        seen = {gpu.device_index: gpu for gpu in gpus}
        for index in seen.keys() - self.gpus.keys():
            absent = array("d", [math.nan]) * rows
            self.gpus[index] = {name: array("d", absent) for name in GPU_COLUMNS}
        for index, held in self.gpus.items():
            for name, value in zip(GPU_COLUMNS, _gpu_values(seen.get(index)), strict=True):
                held[name].append(math.nan if value is None else value)

    def drop(self, count: int) -> None:
        """Remove the oldest samples."""
        del self.t[:count]
        for column in self.columns.values():
            del column[:count]
        for held in self.gpus.values():
            for column in held.values():
                del column[:count]

    def span(self, start: float | None, end: float | None) -> range:
        """Return the rows between two times, both included; ``None`` leaves an end open."""
        first = 0 if start is None else bisect_left(self.t, start)
        last = len(self.t) if end is None else bisect_right(self.t, end)
        return range(first, last)


class TimelineData:
    """Samples and events of one host, with those of the ranks that report to it.

    Not safe to use from several threads; its owner locks.

    Args:
        host: Name of the host.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.dropped = 0
        """Samples and events that had to go because there were too many."""
        self.own = SampleColumns(_HOST_COLUMNS)
        """Samples of this host; none where it only collects."""
        self.ranks: dict[tuple[int, str], SampleColumns] = {}
        """Samples by rank and its host, as ranks have sent them."""
        self._events: deque[TimelineEvent] = deque()

    def __len__(self) -> int:
        return len(self.own.t)

    @property
    def events(self) -> Sequence[TimelineEvent]:
        """What happened, in the order it was told."""
        return tuple(self._events)

    @property
    def devices(self) -> Sequence[int]:
        """Physical indices of the GPUs that were sampled."""
        return tuple(sorted(self.own.gpus))

    def add_sample(self, t_ms: int, sample: ResourceSample) -> None:
        """Append a sample of this host."""
        self.own.add(t_ms, _host_values(sample), sample.gpus)
        self._limit(self.own)

    def add_rank_sample(self, t_ms: int, rank: int, host: str, sample: ResourceSample) -> None:
        """Append a sample that a rank has sent."""
        columns = self.ranks.get((rank, host))
        if columns is None:
            columns = self.ranks[rank, host] = SampleColumns(_HOST_COLUMNS)
        columns.add(t_ms, _host_values(sample), sample.gpus)
        self._limit(columns)

    def add_event(self, event: TimelineEvent) -> None:
        """Append an event."""
        self._events.append(event)
        if len(self._events) > MAX_EVENTS:
            for _ in range(MAX_EVENTS // 10):
                self._events.popleft()
            self.dropped += MAX_EVENTS // 10

    def idle_gaps(
        self, device: int, *, threshold_pct: float = IDLE_PERCENT, min_ms: float = IDLE_MS
    ) -> list[tuple[int, int]]:
        """Return when a GPU did nothing, as pairs of milliseconds.

        A gap reaches from its first sample below the threshold to the first one that is not; one
        that is open at the end counts. Samples without a utilization end a gap.

        Args:
            device: Physical index.
            threshold_pct: Utilization that counts as work.
            min_ms: Length of the shortest gap told.
        """
        held = self.own.gpus.get(device)
        if held is None:
            return []
        return _runs_below(self.own.t, held["u"], threshold_pct, min_ms)

    def rank_idle_gaps(
        self,
        rank: int,
        *,
        threshold_pct: float = IDLE_PERCENT,
        min_ms: float = IDLE_MS,
    ) -> list[tuple[int, int]]:
        """Return when the device of a rank did nothing, by the samples that the rank has sent.

        Ranks send about two samples a second, so that short gaps are not seen.
        """
        return [
            gap
            for (number, _), columns in self.ranks.items()
            if number == rank
            for held in columns.gpus.values()
            for gap in _runs_below(columns.t, held["u"], threshold_pct, min_ms)
        ]

    def idle_events(self) -> list[TimelineEvent]:
        """Return the idle gaps of every GPU with their likely causes, in order of time.

        Devices of ranks count where this host does not sample them itself.
        """
        gaps: list[tuple[dict[str, int], int, int]] = [
            ({"dev": device}, start, end)
            for device in self.devices
            for start, end in self.idle_gaps(device)
        ]
        sampled = set(self.devices)
        gaps += [
            ({"dev": device, "rank": rank}, start, end)
            for (rank, host), columns in self.ranks.items()
            for device, held in columns.gpus.items()
            if host != self.host or device not in sampled
            for start, end in _runs_below(columns.t, held["u"], IDLE_PERCENT, IDLE_MS)
        ]
        found = [
            TimelineEvent(
                start, "idle", {**where, "ms": end - start, "cause": self._cause(start, end)}
            )
            for where, start, end in gaps
        ]
        return sorted(found, key=lambda event: event.t_ms)

    def of_host(self, host: str) -> TimelineData:
        """Return what the ranks of one host have sent, with the events of the whole run."""
        part = TimelineData(host)
        part.ranks = {key: columns for key, columns in self.ranks.items() if key[1] == host}
        part._events = self._events
        return part

    def summary(self) -> TimelineSummary:
        """Return totals and means over the whole timeline."""
        syncs = [e.fields["ms"] for e in self._events if e.kind == "sync_end"]
        averages = [e.fields["ms"] for e in self._events if e.kind == "cpu_avg_end"]
        ends = [*self.own.t[-1:], *(event.t_ms for event in list(self._events)[-1:])]
        return TimelineSummary(
            total_ms=max(ends, default=0),
            sample_count=len(self),
            event_count=len(self._events),
            gpu_idle_pct=tuple(_idle_share(self.own.gpus[d]["u"]) for d in self.devices),
            sync_count=len(syncs),
            avg_sync_ms=_mean(syncs),
            cpu_avg_count=len(averages),
            avg_cpu_avg_ms=_mean(averages),
            anchor_change_count=sum(1 for e in self._events if e.kind == "anchor"),
            throttle_count=sum(1 for e in self._events if e.kind == "throttle"),
        )

    def _cause(self, start: int, end: int) -> str:
        first = min((event.t_ms for event in self._events), default=None)
        if first is None:
            return "unexplained"
        if start < first:
            return "startup"
        near = {
            event.kind
            for event in self._events
            if start - _CAUSE_REACH_MS <= event.t_ms <= end + _CAUSE_REACH_MS
        }
        for cause, kinds in _CAUSES:
            if near.intersection(kinds):
                return cause
        return "unexplained"

    def _limit(self, columns: SampleColumns) -> None:
        if len(columns.t) > MAX_SAMPLES:
            columns.drop(MAX_SAMPLES // 10)
            self.dropped += MAX_SAMPLES // 10


def event_of(t_ms: int, kind: str, fields: Mapping[str, Any]) -> TimelineEvent:
    """Return an event whose fields have a JSON form: absent ones left out, texts cut."""
    plain = {name: _plain(value) for name, value in fields.items()}
    kept = {name: value for name, value in plain.items() if value is not None}
    return TimelineEvent(t_ms, kind, kept)


def _plain(value: Any) -> Any:
    """Return a value in its JSON form; numbers that are not finite become ``None``."""
    match value:
        case str():
            return clean_text(value)
        case float() if not math.isfinite(value):
            return None
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
    return value


def _runs_below(
    times: Sequence[int], values: Sequence[float], threshold: float, min_ms: float
) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    start: int | None = None
    for t, value in zip(times, values, strict=True):
        if value < threshold:
            start = t if start is None else start
        elif start is not None:
            gaps.append((start, t))
            start = None
    if start is not None:
        gaps.append((start, times[-1]))
    return [(first, last) for first, last in gaps if last - first >= min_ms]


def _host_values(sample: ResourceSample) -> dict[str, float | None]:
    return {
        "cpu": sample.cpu_percent,
        "ram_used": sample.ram_used_bytes,
        "ram_total": sample.ram_total_bytes,
    }


def _gpu_values(gpu: GpuSnapshot | None) -> tuple[float | None, ...]:
    if gpu is None:
        return (None,) * len(GPU_COLUMNS)
    return (
        gpu.util_percent,
        gpu.vram_allocated_bytes,
        gpu.vram_used_bytes,
        gpu.vram_total_bytes,
    )


def _idle_share(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return None
    return 100.0 * sum(1 for value in known if value < IDLE_PERCENT) / len(known)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
