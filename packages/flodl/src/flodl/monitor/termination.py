"""Ends a run in good order when its process is told to end."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any


class TerminationGuard:
    """Calls a bound method once when the process exits, or is told to by SIGTERM.

    The signal's former handling follows afterwards, so the process ends as it would have.

    Args:
        method: Bound method without arguments; its object may be dropped before.
    """

    def __init__(self, method: Callable[[], object]) -> None:
        self._method = weakref.WeakMethod(method)
        self._former: Any = None
        self._has_signal = False
        atexit.register(self._call)

    def watch_signal(self) -> None:
        """Also act on SIGTERM; possible in the main thread alone. Idempotent."""
        if self._has_signal or threading.current_thread() is not threading.main_thread():
            return
        self._former = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._on_signal)
        self._has_signal = True

    def release(self) -> None:
        """Act no more. Idempotent."""
        atexit.unregister(self._call)
        if self._has_signal and signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._former)
        self._has_signal = False

    def _call(self) -> None:
        method = self._method()
        if method is not None:
            method()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        former = self._former
        self._call()
        self.release()
        if callable(former):
            former(number, frame)
        elif former is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
