"""How long replays take on the GPU, asked now and then."""

from __future__ import annotations

import torch

_CLOCK_INTERVAL = 64


class SampledClock:
    """Times every 64th replay on the GPU."""

    def __init__(self) -> None:
        self._count = 0
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    def start(self) -> None:
        """Mark the begin of a replay."""
        if self._count % _CLOCK_INTERVAL == 0:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self._events = (begin, end)

    def stop(self) -> None:
        """Mark its end."""
        if self._count % _CLOCK_INTERVAL == 0 and self._events is not None:
            self._events[1].record()
        self._count += 1

    def milliseconds(self) -> float | None:
        """Return the time of the last replay that was timed, after waiting for it."""
        if self._events is None:
            return None
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1]))
