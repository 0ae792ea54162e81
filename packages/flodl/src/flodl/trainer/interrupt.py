"""Ctrl-C during a run: the first one asks it to stop, the second one stops it."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_logger = logging.getLogger(__name__)


class InterruptGuard:
    """Turns the first SIGINT inside a ``with`` block into a request that the loop can honor.

    The batch at hand is finished, so neither the model nor a file is left half-updated. A second
    SIGINT raises ``KeyboardInterrupt`` at once. Outside the main thread, and where the program
    has a handler of its own, signals are left alone.
    """

    def __init__(self) -> None:
        self._requested = False
        self._active = False

    def requested(self) -> bool:
        """Return whether a stop has been asked for."""
        return self._requested

    def __enter__(self) -> Self:
        own_handler = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if threading.current_thread() is threading.main_thread() and not own_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._active = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True
        _logger.warning("stopping after this batch; press Ctrl-C again to stop at once")
