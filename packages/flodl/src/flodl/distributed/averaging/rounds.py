"""Drives one average after another, on the caller's polls or on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import final

from flodl.core.errors import FlodlError
from flodl.distributed.averaging.exchange import Exchange, Payload
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.patience import Interrupt, poll_until

__all__ = ["Conclude", "Progress", "Rounds"]

Conclude = Callable[[Exchange], None]
"""Takes an average over once it is there; on the driving thread."""

_SHORTEST_S, _LONGEST_S = 0.0002, 0.002


class Progress(StrEnum):
    """How far an average is."""

    IDLE = "idle"
    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@final
class Rounds:
    """One exchange at a time and at most one average on it.

    Args:
        is_background: Whether a thread drives it, which starts with the first average and ends
            with `close`; otherwise `poll` does.
    """

    def __init__(self, *, is_background: bool) -> None:
        self.lock = threading.RLock()
        """Held while an average is driven or concluded."""
        self.failure: FlodlError | RuntimeError | None = None
        self._is_background = is_background
        self._exchange: Exchange | None = None
        self._conclude: Conclude | None = None
        self._progress = Progress.IDLE
        self._wake = threading.Condition(self.lock)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def exchange(self) -> Exchange | None:
        """The one in use."""
        return self._exchange

    @property
    def is_pending(self) -> bool:
        """Whether an average is under way."""
        return self._progress is Progress.PENDING

    def use(self, exchange: Exchange) -> None:
        """Average over this exchange from now on; the one before is left."""
        with self.lock:
            self.leave()
            self._exchange = exchange
            self._progress = Progress.IDLE
            self.failure = None

    def start(self, payload: Payload, conclude: Conclude) -> None:
        """Begin an average; returns at once.

        Raises:
            CollectiveError: There is no exchange, it failed, or another average is under way.
        """
        with self.lock:
            if self._exchange is None:
                raise CollectiveError("no generation is formed: nothing to average over")
            if self._progress in (Progress.PENDING, Progress.FAILED):
                raise CollectiveError(f"an average was started while another is {self._progress}")
            self._conclude = conclude
            self._exchange.start(payload)
            self._progress = Progress.PENDING
            if self._is_background:
                self._ensure_thread()
                self._wake.notify_all()
            else:
                self._drive()  # what this rank sends goes out now, not at its next poll

    def poll(self) -> Progress:
        """Return how far the average is, after driving it where no thread does."""
        if not self._is_background:
            self._drive()
        return self._progress

    def wait(self, *, timeout_s: float, interrupted: Interrupt) -> Progress:
        """Poll until the average is over, the time is, or ``interrupted()``."""
        poll_until(
            lambda: self.poll() is not Progress.PENDING,
            timeout_s=timeout_s,
            interrupted=interrupted,
        )
        return self._progress

    def leave(self) -> None:
        """Give the exchange up, after a last look whether the average is there."""
        with self.lock:
            self._drive()
            if self._exchange is not None:
                self._exchange.close()
            self._exchange = None
            if self._progress is Progress.PENDING:
                self._progress = Progress.IDLE

    def close(self) -> None:
        """Leave, and end the thread."""
        with self.lock:
            self._is_closed = True
            self.leave()
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _drive(self) -> None:
        with self.lock:
            if self._progress is not Progress.PENDING or self._exchange is None:
                return
            try:
                if self._exchange.advance():
                    assert self._conclude is not None
                    self._conclude(self._exchange)
                    self._progress = Progress.DONE
            except (FlodlError, RuntimeError) as error:
                self.failure = error
                self._progress = Progress.FAILED

    def _ensure_thread(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="flodl-average", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        pause = _SHORTEST_S
        while True:
            with self._wake:
                if self._is_closed:
                    return
                if self._progress is not Progress.PENDING:
                    pause = _SHORTEST_S
                    self._wake.wait()
                    continue
            self._drive()
            time.sleep(pause)
            pause = min(pause * 1.1, _LONGEST_S)
