"""Something done again and again in the background, until its owner stops it or is dropped."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable


class Repeater:
    """Calls a bound method at intervals, in a daemon thread that keeps its object from nothing.

    Args:
        method: Bound method without arguments.
        pause_s: Seconds between calls.
        name: Name of the thread.
    """

    def __init__(self, method: Callable[[], object], pause_s: float, name: str) -> None:
        reference = weakref.WeakMethod(method)
        self._wake = threading.Event()
        self._is_stopping = False
        weakref.finalize(method.__self__, self._end)  # type: ignore[attr-defined]  # a bound method
        self._thread = threading.Thread(
            target=self._run, args=(reference, pause_s), name=name, daemon=True
        )
        self._thread.start()

    def nudge(self) -> None:
        """Let the next call come at once."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> None:
        """End after the call that is running, and wait for it. Idempotent."""
        self._end()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _end(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def _run(self, reference: weakref.WeakMethod[Callable[[], object]], pause_s: float) -> None:
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._is_stopping:
                return
            method = reference()
            if method is None:
                return
            method()
            del method
