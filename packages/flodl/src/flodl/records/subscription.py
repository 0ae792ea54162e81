"""Reading a tree from another thread: what has been, then what comes, without gap or double."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition
from types import TracebackType
from typing import Self

from flodl.records.record import Record, delivers


class Subscription:
    """Records of one scope, from a backlog on; made by ``RecordTree.subscribe``.

    Attributes:
        backlog: Records that were published before the subscription, oldest first.
        has_gap: Whether records between ``since`` and the backlog are gone for good.
    """

    def __init__(self, scope: str, alerts: str | None, limit: int) -> None:
        self.backlog: Sequence[Record] = ()
        self.has_gap = False
        self._scope = scope
        self._alerts = alerts
        self._limit = limit
        self._queue: deque[Record] = deque()
        self._ready = Condition()
        self._closed = False
        self._dropped = 0
        self._leave: Callable[[], None] = _nothing

    @property
    def dropped(self) -> int:
        """Records that were lost because nobody took them in time."""
        return self._dropped

    def offer(self, records: Sequence[Record]) -> None:
        """Take in what was published; the oldest go when too much waits."""
        wanted = [r for r in records if delivers(self._scope, r.kind, r.path, alerts=self._alerts)]
        if not wanted:
            return
        with self._ready:
            self._queue.extend(wanted)
            while len(self._queue) > self._limit:
                self._queue.popleft()
                self._dropped += 1
            self._ready.notify_all()

    def take(self, timeout: float | None = None) -> list[Record]:
        """Return what has come since, waiting for the first record; empty when time is up."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._closed, timeout)
            taken = list(self._queue)
            self._queue.clear()
            return taken

    def attach(self, leave: Callable[[], None]) -> None:
        """Remember how to end the flow of records."""
        self._leave = leave

    def close(self) -> None:
        """End the subscription and wake whoever waits."""
        self._leave()
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _nothing() -> None:
    return
