"""The high-rate profiler of a run: samples ten times a second, events as they happen."""

from __future__ import annotations

import csv
import io
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Lock
from types import TracebackType
from typing import Any, Self

from flodl.core.errors import ConfigError
from flodl.core.log import warn_once
from flodl.core.resources import ResourceSample
from flodl.device.sampler import ResourceSampler
from flodl.monitor.files import write_file
from flodl.monitor.repeater import Repeater
from flodl.monitor.role import is_primary
from flodl.monitor.spill import TimelineSpill
from flodl.records.events import EventKind
from flodl.records.record import encode_json
from flodl.records.timeline import TimelineData, TimelineEvent, TimelineSummary, event_of
from flodl.records.timeline_export import (
    timeline_body,
    timeline_columns,
    timeline_rows,
    timeline_trace,
)
from flodl.records.timeline_import import timeline_of

_logger = logging.getLogger(__name__)
_MOST_BROADCASTS = 600


@dataclass(frozen=True, slots=True)
class TimelineBroadcast:
    """What was added since the broadcast before; times are milliseconds since the start."""

    samples: list[tuple[int, ResourceSample]] = field(default_factory=list)
    rank_samples: list[tuple[int, int, str, ResourceSample]] = field(default_factory=list)
    """Time, rank, host and sample."""
    events: list[TimelineEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.samples or self.rank_samples or self.events)


class Timeline:
    """Samples this host and its GPUs at high rate and keeps events beside them.

    Attach it with ``.timeline(tl)``, or use it as a context manager. Everything is also kept in
    ``~/.flodl/telemetry`` while it runs, for when the process dies. With several ranks the
    process that directs them keeps it, and this one holds all of it when the run is over.

    Args:
        poll_ms: Milliseconds between samples; 0 takes none, for a host that only collects.
        broadcast_ms: Milliseconds between broadcasts.
        label: Name of the run in the folder of what is kept.
        spill: Folder to keep it in instead; ``False`` keeps nothing.
        sampler: What reads the host; ``None`` makes one.
        clock: Monotonic seconds; for tests.

    Raises:
        ConfigError: An interval is negative, or broadcasts have none.
    """

    def __init__(
        self,
        poll_ms: int = 100,
        broadcast_ms: int = 1000,
        *,
        label: str = "run",
        spill: str | Path | bool = True,
        sampler: ResourceSampler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if poll_ms < 0 or broadcast_ms <= 0:
            raise ConfigError(
                f"Timeline(poll_ms={poll_ms}, broadcast_ms={broadcast_ms}): poll_ms must be at "
                "least 0 and broadcast_ms positive"
            )
        self._poll_ms = poll_ms
        self._broadcast_ms = broadcast_ms
        self._label = label
        self._spill_place = spill
        self._spill: TimelineSpill | None = None
        self._sampler = ResourceSampler() if sampler is None else sampler
        self._clock = clock
        self._started, self._started_at = clock(), time.time()
        self._data = TimelineData(socket.gethostname())
        self._fresh = TimelineBroadcast()
        self._broadcast_at = 0.0
        self._queues: list[Queue[TimelineBroadcast | None]] = []
        self._lock = Lock()
        self._repeater: Repeater | None = None

    @property
    def host(self) -> str:
        """Name of this host."""
        return self._data.host

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the start."""
        return round((self._clock() - self._started) * 1000)

    def __len__(self) -> int:
        return len(self._data)

    def start(self, *, devices: Sequence[int] | None = None) -> None:
        """Begin to sample. Idempotent; in a process that a run has started it does nothing.

        Args:
            devices: Physical indices of GPUs that the ranks of a run use, given by the process
                that directs them.
        """
        if devices is not None:
            self._sampler.watch(devices)
        elif not is_primary():
            return
        if self._repeater is not None:
            return
        if self._spill_place is not False:
            folder = None if self._spill_place is True else Path(self._spill_place)
            self._spill = TimelineSpill.opened(self._label, folder)
        pause = (self._poll_ms or self._broadcast_ms) / 1000
        self._repeater = Repeater(self._tick, pause, "flodl-timeline")

    def stop(self) -> None:
        """End sampling; what was taken stays. Idempotent."""
        repeater, self._repeater = self._repeater, None
        if repeater is None:
            return
        repeater.stop()
        self._broadcast()
        with self._lock:
            for queue in self._queues:
                queue.put(None)
            self._queues.clear()
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def event(self, event: EventKind, *, ago_ms: float = 0.0) -> None:
        """Put an event on the timeline, now or so long ago; from any thread."""
        at = max(0, round(self.elapsed_ms - ago_ms))
        placed = event_of(at, event.kind, event.fields)
        with self._lock:
            self._data.add_event(placed)
            self._fresh.events.append(placed)

    def rank_sample(self, rank: int, host: str, sample: ResourceSample) -> None:
        """Put a sample of a rank of another host on the timeline, now; from any thread."""
        now = self.elapsed_ms
        with self._lock:
            self._data.add_rank_sample(now, rank, host, sample)
            self._fresh.rank_samples.append((now, rank, host, sample))

    def poll(self) -> ResourceSample:
        """Take one sample at once."""
        sample = self._sampler.poll()
        now = self.elapsed_ms
        with self._lock:
            self._data.add_sample(now, sample)
            self._fresh.samples.append((now, sample))
            if self._data.dropped:
                warn_once(_logger, "the timeline is full; its oldest tenth is dropped at a time")
        return sample

    def subscribe(self) -> Iterator[TimelineBroadcast]:
        """Yield what is added from here on, about once a broadcast interval, until the end."""
        queue: Queue[TimelineBroadcast | None] = Queue()
        with self._lock:
            self._queues.append(queue)
        return iter(queue.get, None)

    def idle_gaps(
        self, device: int, *, threshold_pct: float = 5, min_ms: float = 500
    ) -> list[tuple[int, int]]:
        """Return when a GPU did nothing, as pairs of milliseconds since the start.

        Args:
            device: Physical index.
            threshold_pct: Utilization that counts as work.
            min_ms: Length of the shortest gap told.
        """
        with self._lock:
            return self._data.idle_gaps(device, threshold_pct=threshold_pct, min_ms=min_ms)

    def rank_idle_gaps(
        self, rank: int, *, threshold_pct: float = 5, min_ms: float = 500
    ) -> list[tuple[int, int]]:
        """Return when the GPU of a rank did nothing, as pairs of milliseconds since the start.

        Ranks send about two samples a second, so that short gaps are not seen.

        Args:
            rank: The member's number.
            threshold_pct: Utilization that counts as work.
            min_ms: Length of the shortest gap told.
        """
        with self._lock:
            return self._data.rank_idle_gaps(rank, threshold_pct=threshold_pct, min_ms=min_ms)

    def summary(self) -> TimelineSummary:
        """Return totals and means over the whole timeline."""
        with self._lock:
            return self._data.summary()

    def drain(self) -> TimelineData:
        """Return everything so far, and start afresh."""
        with self._lock:
            taken, self._data = self._data, TimelineData(self._data.host)
            return taken

    def body(self, start_ms: float | None = None, end_ms: float | None = None) -> dict[str, Any]:
        """Return the JSON form of the whole timeline, or of a part."""
        with self._lock:
            return timeline_body(self._data, start_ms, end_ms)

    def of_host(self, host: str) -> HostTimeline:
        """Return what the ranks of one host send, as it grows."""
        return HostTimeline(self, host)

    def host_body(
        self, host: str, start_ms: float | None = None, end_ms: float | None = None
    ) -> dict[str, Any]:
        """Return the JSON form of what the ranks of one host have sent, or of a part."""
        with self._lock:
            return timeline_body(self._data.of_host(host), start_ms, end_ms)

    def ship(self, path: str | Path) -> Path:
        """Write everything to a file that :meth:`take_over` reads in another process.

        Raises:
            MonitorExportError: It cannot be written.
        """
        return write_file(path, encode_json({"started": self._started_at, **self.body()}))

    def take_over(self, path: str | Path) -> None:
        """Hold what another process has shipped, in place of samples of this one.

        Events that were marked here stay.

        Raises:
            OSError: The file cannot be read.
        """
        body = json.loads(Path(path).read_bytes())
        ran_here = bool(len(self._data) or self._data.events)
        shift = round((body["started"] - self._started_at) * 1000) if ran_here else 0
        data = timeline_of(body, shift_ms=shift)
        with self._lock:
            for event in self._data.events:
                data.add_event(event)
            self._data = data

    def save_json(self, path: str | Path) -> Path:
        """Write the timeline as JSON.

        Raises:
            MonitorExportError: It cannot be written.
        """
        return write_file(path, encode_json(self.body()))

    def save_csv(self, path: str | Path) -> Path:
        """Write the samples as CSV; what was not measured is empty.

        Raises:
            MonitorExportError: It cannot be written.
        """
        text = io.StringIO()
        with self._lock:
            csv.writer(text, lineterminator="\n").writerows(timeline_rows(self._data))
        return write_file(path, text.getvalue().encode())

    def save_html(self, path: str | Path) -> Path:
        """Write the timeline as one offline page.

        Raises:
            MonitorExportError: It cannot be written.
        """
        from flodl.web.archive import page_with_data
        from flodl.web.page_files import TIMELINE

        with self._lock:
            body = timeline_columns(self._data)
        return write_file(path, page_with_data(TIMELINE, encode_json(body)))

    def save_trace(self, path: str | Path) -> Path:
        """Write the timeline as a trace for Perfetto or Chrome.

        Raises:
            MonitorExportError: It cannot be written.
        """
        with self._lock:
            body = timeline_trace(self._data)
        return write_file(path, encode_json(body))

    def __reduce__(self) -> tuple[Callable[..., Timeline], tuple[object, ...]]:
        # a process that gets it by pickle begins one of its own
        return _made_again, (self._poll_ms, self._broadcast_ms, self._label, self._spill_place)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _tick(self) -> None:
        if self._poll_ms:
            try:
                self.poll()
            except Exception as error:  # noqa: BLE001 (an observer must not end what it observes)
                warn_once(_logger, "the timeline cannot sample: %s", error)
        if self._clock() - self._broadcast_at >= self._broadcast_ms / 1000:
            self._broadcast_at = self._clock()
            self._broadcast()

    def _broadcast(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, TimelineBroadcast()
            queues = tuple(self._queues)
        if not fresh:
            return
        for queue in queues:
            while queue.qsize() >= _MOST_BROADCASTS:
                try:
                    queue.get_nowait()
                except Empty:  # its reader was faster
                    break
            queue.put(fresh)
        if self._spill is not None:
            self._spill.write(self._spill_body(fresh))

    def _spill_body(self, fresh: TimelineBroadcast) -> dict[str, Any]:
        part = TimelineData(self._data.host)
        for t, sample in fresh.samples:
            part.add_sample(t, sample)
        for t, rank, host, sample in fresh.rank_samples:
            part.add_rank_sample(t, rank, host, sample)
        for event in fresh.events:
            part.add_event(event)
        return timeline_body(part)


class HostTimeline:
    """The part of a timeline that the ranks of one host send.

    Args:
        timeline: The whole.
        host: Name of the host.
    """

    def __init__(self, timeline: Timeline, host: str) -> None:
        self._timeline = timeline
        self._host = host

    def body(self, start_ms: float | None = None, end_ms: float | None = None) -> dict[str, Any]:
        """Return the JSON form of the part between two times since its start."""
        return self._timeline.host_body(self._host, start_ms, end_ms)


def _made_again(poll_ms: int, broadcast_ms: int, label: str, spill: str | Path | bool) -> Timeline:
    return Timeline(poll_ms, broadcast_ms, label=label, spill=spill)
