"""The newest records of one node, bounded in number and in bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from flodl.records.record import Record

BUDGET_BYTES = 96 << 20
_NOMINAL_BYTES = 600
_FEWEST, _MOST = 32, 4096


class RecordRing:
    """Keeps the newest records of one path.

    Args:
        path: Path of every record in it.
    """

    __slots__ = ("_bytes", "_lines", "_seqs", "dropped_seq", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped_seq = 0
        """Sequence number of the newest record that had to go."""
        self._seqs: deque[int] = deque()
        self._lines: deque[bytes] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._seqs)

    def add(self, seq: int, line: bytes, *, nodes: int) -> None:
        """Append a record; the oldest go when this ring's share of the room is used up.

        Args:
            seq: Its sequence number.
            line: Its JSON line.
            nodes: Number of rings that share the room.
        """
        self._seqs.append(seq)
        self._lines.append(line)
        self._bytes += len(line)
        share = BUDGET_BYTES // nodes
        most = min(max(share // _NOMINAL_BYTES, _FEWEST), _MOST)
        while len(self._seqs) > most or (self._bytes > share and len(self._seqs) > _FEWEST):
            self.dropped_seq = self._seqs.popleft()
            self._bytes -= len(self._lines.popleft())

    def newest_first(self) -> Iterator[Record]:
        """Yield the records, newest first."""
        for seq, line in zip(reversed(self._seqs), reversed(self._lines), strict=True):
            yield Record(seq, "node", self.path, line)

    def oldest_first(self, *, since: int) -> Iterator[Record]:
        """Yield the records after ``since``, oldest first."""
        for seq, line in zip(self._seqs, self._lines, strict=True):
            if seq > since:
                yield Record(seq, "node", self.path, line)
