"""How far the host may be ahead of a GPU."""

from __future__ import annotations

from collections import deque

import torch

_QUEUED_STEPS = 4
"""Steps that a GPU may be behind the host: enough to keep it busy, few enough to time them."""


class Pace:
    """Keeps the host at most a few steps ahead of a GPU, so that a step's time is its own.

    Args:
        device: Where the steps run; on the CPU there is nothing to keep.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"
        self._events: deque[torch.cuda.Event] = deque()
        self._spare: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Note the end of a step, and wait for the one of a few steps ago."""
        if not self._is_gpu:
            return
        event = self._spare.pop() if self._spare else torch.cuda.Event()
        event.record()
        self._events.append(event)
        if len(self._events) > _QUEUED_STEPS:
            oldest = self._events.popleft()
            oldest.synchronize()
            self._spare.append(oldest)
