"""What a step knows about the batches of one shape, and how long replays take."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from flodl.engine.capture import Part, Program
from flodl.engine.fallback import CaptureReason, Mode

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


@dataclass(slots=True)
class Signature:
    """What is known about batches of one shape, and how they run.

    Attributes:
        title: The signature in words.
        warmup: Eager steps still to take before a capture.
        mode: How its steps run, or are to run once they are recorded.
        reason: Why it is a lower mode.
        programs: The recordings, by part of the accumulation window.
    """

    title: str
    warmup: int
    mode: Mode
    reason: CaptureReason | None = None
    programs: dict[Part, Program] = field(default_factory=dict)
    replays: int = 0
    changes_in_a_row: int = 0
    replays_since_change: int = 0
