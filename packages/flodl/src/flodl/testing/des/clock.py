"""A virtual clock: what is to happen, in the order in which it does."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class VirtualClock:
    """Calls functions at their time; of two at the same time, the one that was named first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._pushed = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to happen any more."""
        return not self._heap

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call a function after some seconds."""
        self._pushed += 1
        heapq.heappush(self._heap, (self.now + seconds, self._pushed, action, arguments))

    def step(self) -> None:
        """Go on to what happens next, and let it happen."""
        self.now, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)
