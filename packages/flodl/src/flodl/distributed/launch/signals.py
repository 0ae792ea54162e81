"""Ctrl-C and SIGTERM in the launcher: the first asks the run to end, a second Ctrl-C ends it."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Protocol

_logger = logging.getLogger(__name__)


class Stoppable(Protocol):
    """A run that can be asked to end, and ended."""

    def stop(self, *, save: bool = True, reason: str = "graceful_shutdown") -> None:
        """Ask for an end in good order."""

    def abort(self) -> None:
        """End all processes now."""


class SignalWatch:
    """Turns signals into requests to a run, from :meth:`install` to :meth:`remove`.

    Outside the main thread, and where the program has a handler of its own, signals are left alone.

    Args:
        run: What is asked.
    """

    def __init__(self, run: Stoppable) -> None:
        self._run = run
        self._is_installed: dict[int, object] = {}
        self.received: int | None = None
        """The first signal that came, ``None`` before."""

    @property
    def exit_code(self) -> int:
        """Status that a shell expects of a program ended by the signal that came; 0 before."""
        return 0 if self.received is None else 128 + self.received

    def install(self) -> None:
        """Begin to listen."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, default in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
        ):
            if signal.getsignal(number) == default:
                signal.signal(number, self._handle)
                self._is_installed[number] = default

    def remove(self) -> None:
        """Put the handlers back."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, default in self._is_installed.items():
            signal.signal(number, default)  # type: ignore[arg-type]
        self._is_installed.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            self._run.stop(save=True, reason="interrupted")
            if number == signal.SIGINT:
                _logger.warning(
                    "stopping after a last window; press Ctrl-C again to end all processes at once"
                )
        elif number == signal.SIGINT:
            self._run.abort()
            raise KeyboardInterrupt
