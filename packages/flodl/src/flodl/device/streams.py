"""Events and streams of a GPU that also work, as no-ops with a clock, on the CPU."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import torch

from flodl.core.errors import ConfigError


class GpuEvent:
    """A point in a stream's work: wait for it, ask whether it is reached, or measure from it.

    Args:
        timing: Whether times can be measured between events.
        device: Where it is recorded; by default a GPU where torch has one, else the CPU.
    """

    def __init__(self, timing: bool = True, device: torch.device | str | None = None) -> None:
        self.timing = timing
        self._event = torch.cuda.Event(enable_timing=timing) if _is_gpu(device) else None
        self.recorded_at: float | None = None
        """Host clock when it was last recorded, in seconds."""

    def record(self) -> None:
        """Mark the end of what has been launched on the current stream."""
        self.recorded_at = time.perf_counter()
        if self._event is not None:
            self._event.record()

    def record_on(self, stream: GpuStream) -> None:
        """Mark the end of what has been launched on a stream."""
        self.recorded_at = time.perf_counter()
        if self._event is not None and stream.raw is not None:
            self._event.record(stream.raw)

    def synchronize(self) -> None:
        """Wait until the point is reached."""
        if self._event is not None:
            self._event.synchronize()

    def is_complete(self) -> bool:
        """Return whether the point is reached; also true when it was never recorded."""
        return self._event is None or self._event.query()

    @property
    def raw(self) -> torch.cuda.Event | None:
        """The event of torch, ``None`` on the CPU."""
        return self._event

    @staticmethod
    def elapsed_time(start: GpuEvent, end: GpuEvent) -> float:
        """Return the milliseconds between two events, after waiting for the later.

        Raises:
            ConfigError: An event was made without timing, or not recorded.
        """
        for name, event in (("start", start), ("end", end)):
            if not event.timing:
                raise ConfigError(f"elapsed_time({name}): the event was made with timing=False")
            if event.recorded_at is None:
                raise ConfigError(f"elapsed_time({name}): the event was not recorded")
        if start.raw is not None and end.raw is not None:
            end.raw.synchronize()
            return float(start.raw.elapsed_time(end.raw))
        assert start.recorded_at is not None
        assert end.recorded_at is not None
        return (end.recorded_at - start.recorded_at) * 1000


class GpuStream:
    """A queue of work on a GPU; on the CPU everything is done at once.

    Args:
        device: The GPU, or the CPU.
        high_priority: Whether its work goes before that of other streams.
    """

    def __init__(self, device: torch.device | str, high_priority: bool = False) -> None:
        self.device = torch.device(device)
        priority = -1 if high_priority else 0
        self._stream = (
            torch.cuda.Stream(self.device, priority=priority) if _is_gpu(self.device) else None
        )

    @property
    def raw(self) -> torch.cuda.Stream | None:
        """The stream of torch, ``None`` on the CPU."""
        return self._stream

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        if self._stream is not None:
            self._stream.synchronize()

    def wait_event(self, event: GpuEvent) -> None:
        """Let later work wait for an event, without blocking the host."""
        if self._stream is not None and event.raw is not None:
            self._stream.wait_event(event.raw)

    def is_complete(self) -> bool:
        """Return whether all its work is done."""
        return self._stream is None or self._stream.query()


class StreamGuard:
    """Makes a stream the current one within a ``with`` block, and the previous one afterwards."""

    def __init__(self, stream: GpuStream) -> None:
        self._context = None if stream.raw is None else torch.cuda.stream(stream.raw)

    def __enter__(self) -> Self:
        if self._context is not None:
            self._context.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._context is not None:
            self._context.__exit__(kind, error, trace)


def _is_gpu(device: torch.device | str | None) -> bool:
    if device is None:
        return torch.cuda.is_available()
    return torch.device(device).type == "cuda"
