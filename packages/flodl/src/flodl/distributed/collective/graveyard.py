"""Where abandoned collectives stay until they end by themselves.

Dropping the last reference to a group with an operation in flight can block, and a peer that is
frozen keeps an operation in flight for minutes: both happen on threads that nobody waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import final

__all__ = ["Graveyard"]

_POLL_S = 0.02


@final
class Graveyard:
    """Keeps things alive until a condition holds, then lets go of them on a thread of its own."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def bury(self, things: list[object], is_over: Callable[[], bool]) -> None:
        """Keep ``things`` until ``is_over()``; the caller empties its own references.

        The list is emptied here, so that the thread drops the last reference.
        """
        kept = list(things)
        things.clear()
        thread = threading.Thread(
            target=_let_go, args=(kept, is_over), name="flodl-graveyard", daemon=True
        )
        self._threads = [old for old in self._threads if old.is_alive()]
        self._threads.append(thread)
        thread.start()

    def __len__(self) -> int:
        """Return how many burials are not over."""
        return sum(thread.is_alive() for thread in self._threads)

    def wait(self, timeout_s: float) -> bool:
        """Wait for all burials to be over, and return whether they are."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return len(self) == 0


def _let_go(kept: list[object], is_over: Callable[[], bool]) -> None:
    while not is_over():
        time.sleep(_POLL_S)
    kept.clear()
