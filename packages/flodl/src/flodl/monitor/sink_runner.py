"""Feeds sinks from one thread, so that no target holds up training or another target."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flodl.records.record import Record, RunStatus, Sink

MAX_WAITING = 10_000
_FAILURES = 3
_logger = logging.getLogger(__name__)


class SinkRunner:
    """Hands records to sinks; one that fails three times running is left out from then on.

    Args:
        sinks: The sinks.
        run: Called for the run's identity before the first record of anything that happened.
        on_trouble: Called with a text when a sink is given up.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        run: Callable[[], Mapping[str, Any]],
        on_trouble: Callable[[str], object],
    ) -> None:
        self.dropped = 0
        """Records that were lost because the sinks did not keep up."""
        self._run_facts = run
        self._on_trouble = on_trouble
        self._waiting: deque[Record] = deque()
        self._sinks = [_Attempts(sink) for sink in sinks]
        self._wake = threading.Event()
        self._status: RunStatus | None = None
        self._thread = threading.Thread(target=self._run, name="flodl-sinks", daemon=True)
        self._thread.start()

    def offer(self, records: Sequence[Record]) -> None:
        """Queue records; the oldest are dropped when too many wait."""
        self._waiting.extend(records)
        while len(self._waiting) > MAX_WAITING:
            with contextlib.suppress(IndexError):  # the runner was faster
                self._waiting.popleft()
                self.dropped += 1
        self._wake.set()

    def close(self, status: RunStatus, timeout: float = 30.0) -> None:
        """Hand over what waits, close the sinks, and end. Idempotent."""
        self._status = status
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if batch:
                self._hand_over(batch)
            if self._status is not None and not self._waiting:
                for held in self._sinks:
                    if held.is_open:
                        self._attempt(held, held.sink.close, self._status)
                if self.dropped:
                    _logger.warning("sinks did not keep up: %d records were lost", self.dropped)
                return

    def _hand_over(self, batch: Sequence[Record]) -> None:
        # what the run is may change until something has happened in it
        is_begun = any(record.kind != "meta" for record in batch)
        for held in self._sinks:
            if held.failures >= _FAILURES:
                continue
            if not held.is_open and is_begun:
                held.is_open = self._attempt(held, held.sink.open, self._run_facts())
            if held.is_open:
                self._attempt(held, held.sink.write, batch)

    def _attempt(self, held: _Attempts, call: Callable[..., object], *args: object) -> bool:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 (other people's libraries raise anything)
            held.failures += 1
            name = type(held.sink).__name__
            _logger.warning("%s failed (%d of %d): %s", name, held.failures, _FAILURES, error)
            if held.failures == _FAILURES:
                self._on_trouble(f"{name} failed {_FAILURES} times and is left out: {error}")
            return False
        held.failures = 0
        return True


class _Attempts:
    """A sink, and how it has fared."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.failures = 0
        self.is_open = False
