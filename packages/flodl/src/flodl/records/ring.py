"""The newest records of one node, bounded in number and in bytes."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator

from flodl.records.record import Record

BUDGET_BYTES = 96 << 20
_NOMINAL_BYTES = 600
_FEWEST, _MOST = 32, 4096
_BLOCK_BYTES = 8 << 10


class RecordRing:
    """Keeps the newest records of one path.

    Lines lie one after the other in blocks of one size. On their own, each would take a place of
    its length, and where lines of a whole tree grow by a byte, the places of the shorter ones would
    stay behind unused.

    Args:
        path: Path of every record in it.
    """

    __slots__ = ("_blocks", "_bytes", "_count", "dropped_seq", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped_seq = 0
        """Sequence number of the newest record that had to go."""
        self._blocks: deque[_Block] = deque()
        self._bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, seq: int, line: bytes, *, nodes: int) -> None:
        """Append a record; the oldest go when this ring's share of the room is used up.

        Args:
            seq: Its sequence number.
            line: Its JSON line.
            nodes: Number of rings that share the room.
        """
        if not self._blocks or not self._blocks[-1].takes(line):
            self._blocks.append(_Block(max(_BLOCK_BYTES, len(line))))
        self._blocks[-1].add(seq, line)
        self._count += 1
        self._bytes += len(line)
        share = BUDGET_BYTES // nodes
        most = min(max(share // _NOMINAL_BYTES, _FEWEST), _MOST)
        while self._count > most or (self._bytes > share and self._count > _FEWEST):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        block = self._blocks[0]
        self.dropped_seq, freed = block.drop()
        self._count -= 1
        self._bytes -= freed
        if block.is_spent:
            self._blocks.popleft()

    def newest_first(self) -> Iterator[Record]:
        """Yield the records, newest first."""
        for block in reversed(self._blocks):
            for place in reversed(block.places()):
                yield self._record(block, place)

    def oldest_first(self, *, since: int) -> Iterator[Record]:
        """Yield the records after ``since``, oldest first."""
        for block in self._blocks:
            for place in block.places():
                if block.seqs[place] > since:
                    yield self._record(block, place)

    def _record(self, block: _Block, place: int) -> Record:
        return Record(block.seqs[place], "node", self.path, block.line(place))


class _Block:
    """Lines in one piece of memory.

    Args:
        size: Bytes of it.
    """

    __slots__ = ("_data", "_ends", "_gone", "seqs")

    def __init__(self, size: int) -> None:
        self._data = bytearray(size)
        self._ends = array("L", [0])
        self._gone = 0
        self.seqs = array("Q")

    @property
    def is_spent(self) -> bool:
        """Whether every line that was added has been dropped."""
        return self._gone == len(self.seqs)

    def takes(self, line: bytes) -> bool:
        """Return whether there is room for a line."""
        return self._ends[-1] + len(line) <= len(self._data)

    def add(self, seq: int, line: bytes) -> None:
        """Append a line that there is room for."""
        start = self._ends[-1]
        end = start + len(line)
        self._data[start:end] = line
        self._ends.append(end)
        self.seqs.append(seq)

    def drop(self) -> tuple[int, int]:
        """Give up the oldest line; return its sequence number and its bytes."""
        place = self._gone
        self._gone += 1
        return self.seqs[place], self._ends[place + 1] - self._ends[place]

    def places(self) -> range:
        """Return the places of the lines that are kept, oldest first."""
        return range(self._gone, len(self.seqs))

    def line(self, place: int) -> bytes:
        """Return the line at a place."""
        return bytes(self._data[self._ends[place] : self._ends[place + 1]])
