"""What a run keeps: its nodes by path, and its newest records, numbered and told in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from flodl.core.paths import ROOT, parent_path
from flodl.records.node import Node
from flodl.records.record import VERSION, Record, encode_json
from flodl.records.shelf import RecordShelf

MAX_PATHS = 4096
ALL_CHILDREN = slice(None)

Listener = Callable[[Sequence[Record]], None]


class HistorySlice(NamedTuple):
    """Records of one scope, oldest first."""

    records: list[Record]
    has_gap: bool
    """Whether records after the asked-for start are gone for good."""


class RecordStore:
    """Nodes and records of one run, in bounded memory. Its owner locks.

    Args:
        clock: Monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self.seq = 0
        """Sequence number of the newest record."""
        self.nodes: dict[str, Node] = {}
        self._clock = clock
        self._wall = wall
        self._made: list[Record] = []
        self._shelves = {kind: RecordShelf(kind) for kind in ("event", "log")}
        self._shelves["meta"] = RecordShelf("meta", is_state=True)
        self._listeners: list[Listener] = []
        self.root = self._make_node(ROOT, None)

    # ------------------------------------------------------------ nodes

    def node_at(self, path: str) -> Node | None:
        """Return the node at a path, made with those above it; ``None`` when there are too many."""
        known = self.nodes.get(path)
        if known is not None:
            return known
        above = parent_path(path)
        parent = None if above is None else self.node_at(above)
        if parent is None or len(self.nodes) >= MAX_PATHS:
            return None
        return self._make_node(path, parent)

    def _make_node(self, path: str, parent: Node | None) -> Node:
        node = Node(path, parent, self._clock())
        self.nodes[path] = node
        if parent is not None:
            parent.adopt(node)
        return node

    # ------------------------------------------------------------ writing

    def now_ms(self) -> int:
        """Return the Unix time that records are stamped with, in milliseconds."""
        return int(self._wall() * 1000)

    def add(self, kind: str, path: str | None, fields: Mapping[str, Any]) -> Record:
        """Make and keep a record that is no node's."""
        self.seq += 1
        body = {"v": VERSION, "seq": self.seq, "ts": self.now_ms(), "kind": kind, **fields}
        return self.keep(Record(self.seq, kind, path, encode_json(body)))

    def keep(self, record: Record) -> Record:
        """Keep a record that is no node's."""
        self.seq = max(self.seq, record.seq)
        self._shelves.setdefault(record.kind, RecordShelf(record.kind)).add(record)
        self._made.append(record)
        return record

    def add_of_node(self, node: Node, fields: Mapping[str, Any], ts: int) -> None:
        """Make and keep a record of a node's numbers.

        Args:
            node: Which node.
            fields: What is told of it.
            ts: Unix milliseconds.
        """
        self.seq += 1
        body: dict[str, Any] = {
            "v": VERSION,
            "seq": self.seq,
            "ts": ts,
            "sev": "warn" if "nonfinite" in fields else "info",
            "kind": "node",
            "path": node.path,
            **fields,
            **node.facts(),
        }
        self.keep_of_node(node, body, Record(self.seq, "node", node.path, encode_json(body)))

    def keep_of_node(self, node: Node, body: Mapping[str, Any], record: Record) -> None:
        """Keep a record of a node's numbers."""
        self.seq = max(self.seq, record.seq)
        node.ring.add(record.seq, record.line, nodes=len(self.nodes))
        node.keep(body)
        self._made.append(record)

    def tell(self) -> list[Record]:
        """Hand all records made by one call to the listeners at once, so that order holds."""
        made, self._made = self._made, []
        if made:
            for listener in tuple(self._listeners):
                listener(made)
        return made

    # ------------------------------------------------------------ reading

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with every batch of new records."""
        self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        """Call ``listener`` no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def everything(self) -> list[Record]:
        """Return every record that is kept, oldest first."""
        rings = [node.ring.oldest_first(since=0) for node in self.nodes.values()]
        shelves = [shelf.everything() for shelf in self._shelves.values()]
        return list(heapq.merge(*rings, *shelves, key=lambda record: record.seq))

    def history(
        self,
        path: str,
        *,
        n: int,
        since: int | None,
        alerts: str | None,
        children: slice = ALL_CHILDREN,
    ) -> HistorySlice:
        """Return the newest ``n`` records of a scope, or the first ``n`` after ``since``."""
        node = self.nodes.get(path)
        below = [] if node is None else node.children[children]
        rings = [] if node is None else [node.ring, *(child.ring for child in below)]
        shelves = list(self._shelves.values())
        if since is None:
            sources = [ring.newest_first() for ring in rings]
            sources += [shelf.newest_first(path, alerts) for shelf in shelves]
            newest = heapq.merge(*sources, key=lambda record: -record.seq)
            return HistorySlice(list(islice(newest, n))[::-1], has_gap=False)
        sources = [ring.oldest_first(since=since) for ring in rings]
        sources += [shelf.oldest_first(path, alerts, since=since) for shelf in shelves]
        oldest = heapq.merge(*sources, key=lambda record: record.seq)
        gone = [ring.dropped_seq for ring in rings] + [shelf.dropped_seq for shelf in shelves]
        return HistorySlice(list(islice(oldest, n)), has_gap=max(gone) > since)

    def recent_rows(self, path: str, n: int) -> list[Record]:
        """Return a node's own newest ``n`` records, oldest first."""
        node = self.nodes.get(path)
        return [] if node is None else list(islice(node.ring.newest_first(), n))[::-1]

    def in_natural_order(self) -> Iterable[Node]:
        """Return every node, sorted by path."""
        return sorted(self.nodes.values(), key=lambda node: node.sort_key)
