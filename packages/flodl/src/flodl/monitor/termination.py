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

_PATIENCE_S = 5.0


class TerminationGuard:
    """Calls a bound method once when the process exits, or is told to by SIGTERM.

    The signal's former handling follows afterwards, so the process ends as it would have. Processes
    that are forked from this one end as if there were no guard.

    The signal may come while the main thread holds a lock that the end needs. So the method runs
    in a thread of its own, and the main thread, after some patience, goes on until it is done.

    Args:
        method: Bound method without arguments; its object may be dropped before.
    """

    def __init__(self, method: Callable[[], object]) -> None:
        self._method = weakref.WeakMethod(method)
        self._process = os.getpid()
        self._former: Any = None
        self._has_signal = False
        self._ending: threading.Thread | None = None
        self._is_done = False
        atexit.register(self._at_exit)

    def watch_signal(self) -> None:
        """Also act on SIGTERM; possible in the main thread alone. Idempotent."""
        if self._has_signal or not _is_main_thread():
            return
        self._former = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._on_signal)
        self._has_signal = True

    def release(self) -> None:
        """Act no more. Idempotent; outside the main thread the signal is still passed on."""
        atexit.unregister(self._at_exit)
        if not _is_main_thread():
            return
        if self._has_signal and signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._former)
        self._has_signal = False

    def _at_exit(self) -> None:
        if self._ending is not None:
            self._ending.join()
        else:
            self._call()

    def _call(self) -> None:
        method = self._method()
        if method is not None and os.getpid() == self._process:
            method()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_done or os.getpid() != self._process:
            self._pass_on(number, frame)
            return
        if self._ending is None:
            self._ending = threading.Thread(target=self._end, name="flodl-ending", daemon=True)
            self._ending.start()
        self._ending.join(_PATIENCE_S)

    def _end(self) -> None:
        try:
            self._call()
        finally:
            self._is_done = True
            os.kill(self._process, signal.SIGTERM)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        former = self._former
        self.release()
        if callable(former):
            former(number, frame)
        elif former is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
