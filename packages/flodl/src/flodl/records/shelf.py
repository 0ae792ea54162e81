"""The newest records that are no numbers: what the run is, what happened, what was said."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from flodl.records.record import Record, delivers

MOST = 4096


class RecordShelf:
    """Keeps the newest records of one kind over all paths.

    Args:
        kind: Kind of every record in it.
        is_state: Whether each record says all that the one before said, which then goes.
    """

    def __init__(self, kind: str, *, is_state: bool = False) -> None:
        self.kind = kind
        self.dropped_seq = 0
        """Sequence number of the newest record that had to go."""
        self._records: deque[Record] = deque()
        self._is_state = is_state

    def add(self, record: Record) -> None:
        """Append a record; the oldest goes when there are too many."""
        if self._is_state:
            self._records.clear()
        self._records.append(record)
        if len(self._records) > MOST:
            self.dropped_seq = self._records.popleft().seq

    def everything(self) -> Iterator[Record]:
        """Yield every record, oldest first."""
        yield from self._records

    def newest_first(self, scope: str, alerts: str | None) -> Iterator[Record]:
        """Yield what a viewer of ``scope`` gets, newest first."""
        for record in reversed(self._records):
            if delivers(scope, self.kind, record.path, alerts=alerts):
                yield record

    def oldest_first(self, scope: str, alerts: str | None, *, since: int) -> Iterator[Record]:
        """Yield what a viewer of ``scope`` gets after ``since``, oldest first."""
        for record in self._records:
            if record.seq > since and delivers(scope, self.kind, record.path, alerts=alerts):
                yield record
