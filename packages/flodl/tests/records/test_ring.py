import random
from collections import deque

import pytest

from flodl.records import ring as under_test
from flodl.records.ring import RecordRing


class Plain:
    """The same ring without blocks."""

    def __init__(self):
        self.kept = deque()
        self.dropped_seq = 0

    def add(self, seq, line, nodes):
        self.kept.append((seq, line))
        share = under_test.BUDGET_BYTES // nodes
        most = min(max(share // 600, 32), 4096)
        while len(self.kept) > most or (
            sum(len(line) for _, line in self.kept) > share and len(self.kept) > 32
        ):
            self.dropped_seq = self.kept.popleft()[0]


@pytest.mark.parametrize("seed", range(4))
def test_a_ring_keeps_the_newest_lines_within_its_share(monkeypatch, seed):
    monkeypatch.setattr(under_test, "BUDGET_BYTES", 1 << 20)
    chance = random.Random(seed)
    ring, plain, seq = RecordRing("root/a"), Plain(), 0
    for _ in range(600):
        seq += chance.randint(1, 3)
        length = chance.choice([1, 80, 600, 601, 8192, 20_000])
        nodes = chance.choice([1, 12, 40])
        line = chance.randbytes(length)
        ring.add(seq, line, nodes=nodes)
        plain.add(seq, line, nodes)
        assert len(ring) == len(plain.kept)
    assert ring.dropped_seq == plain.dropped_seq > 0
    found = [(record.seq, record.line) for record in ring.oldest_first(since=0)]
    assert found == list(plain.kept)
    assert [(r.seq, r.line) for r in ring.newest_first()] == found[::-1]
    middle = found[len(found) // 2][0]
    assert [r.seq for r in ring.oldest_first(since=middle)] == [s for s, _ in found if s > middle]
    assert {(r.kind, r.path) for r in ring.newest_first()} == {("node", "root/a")}


def test_lines_that_grow_take_places_of_the_same_size():
    ring = RecordRing("root")
    for seq in range(1, 3000):
        ring.add(seq, b"x" * (600 + seq // 500), nodes=340)
    sizes = {len(block._data) for block in ring._blocks}
    assert sizes == {8192}
    assert len(ring._blocks) <= -(-len(ring) // 13) + 1  # 13 lines of 600 bytes fit into each


def test_sequence_numbers_of_very_long_runs_are_kept():
    ring = RecordRing("root")
    ring.add(2**62, b"{}", nodes=1)
    assert next(ring.newest_first()).seq == 2**62
