"""The record tree of a run: leaves report, every other node sums up its direct children."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from statistics import median
from threading import RLock
from typing import Any, NamedTuple

from flodl.core.log import warn_once
from flodl.core.paths import ROOT, check_record_path, is_within, parent_path
from flodl.records.alerts import SEVERITIES, AlertLane, Occurrence
from flodl.records.levels import interior_fields, leaf_fields
from flodl.records.node import Interval, Node, NodeReport
from flodl.records.record import (
    VERSION,
    Record,
    Severity,
    clean_text,
    encode_json,
    is_metric_key,
)
from flodl.records.rollup import NodeValues, Reduction, Reductions, measured
from flodl.records.series import SeriesSlice
from flodl.records.shelf import RecordShelf
from flodl.records.subscription import Subscription
from flodl.records.view import NodeView, view_of

MAX_PATHS = 4096
MAX_KEYS = 256

Listener = Callable[[Sequence[Record]], None]
_logger = logging.getLogger(__name__)
_STALL_FLOOR_S = 30.0
_STALL_FACTOR = 5.0
_ALL = slice(None)


class HistorySlice(NamedTuple):
    """Records of one scope, oldest first."""

    records: list[Record]
    has_gap: bool
    """Whether records after the asked-for start are gone for good."""


class RecordTree:
    """All records of one run, by path, in bounded memory; safe to use from any thread.

    Args:
        clock: Monotonic seconds; for tests.
        wall: Unix seconds; for tests.

    Examples:
        >>> tree = RecordTree()
        >>> _ = tree.publish(
        ...     [
        ...         NodeReport(path="root/rank0", metrics={"loss": 1.0}, work=30, tick=0),
        ...         NodeReport(path="root/rank1", metrics={"loss": 2.0}, work=10, tick=0),
        ...     ]
        ... )
        >>> tree.current("root")["metrics"]["loss"]
        1.25
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._lock = RLock()
        self._seq = 0
        self._made: list[Record] = []
        self._nodes: dict[str, Node] = {}
        self._reductions = Reductions()
        self._run: dict[str, Any] = {}
        self._units: dict[str, str] = {"throughput": "samples/ms"}
        self._meta: Record | None = None
        self._shelves = {kind: RecordShelf(kind) for kind in ("meta", "event", "log")}
        self._lane = AlertLane()
        self._refused: set[tuple[str, str]] = set()
        self._nonfinite_seen: set[tuple[str, str]] = set()
        self._listeners: list[Listener] = []
        self._watches_stalls = False
        self._root = self._make_node(ROOT, None)

    # ------------------------------------------------------------ writing

    def publish(
        self, reports: Iterable[NodeReport], *, engine: Mapping[str, float] | None = None
    ) -> list[Record]:
        """Take in what leaves measured and bring every node above them up to date.

        Reports of one interval that belong together go in together: each node above is computed
        once per interval, from those of its children that reported it.

        Args:
            reports: One per leaf and interval.
            engine: Values of the run itself (anchor, synchronization times), shown at the root.

        Returns:
            The records made, leaves first, the root last.

        Raises:
            RecordPathError: A report's path is none; nothing was published.
        """
        by_interval: dict[Interval, list[NodeReport]] = {}
        for report in reports:
            check_record_path(report.path)
            by_interval.setdefault(report.interval, []).append(report)
        with self._lock:
            ts = self._now_ms()
            own = dict(measured(engine, 0).metrics) if engine else {}
            for interval, group in by_interval.items():
                own = self._publish_interval(interval, group, own, ts)
            if own:
                self._add_node_record(self._root, {"metrics": own}, ts)
            return self._tell()

    def alert(
        self, name: str, path: str, detail: str, *, severity: Severity | None = None
    ) -> list[Record]:
        """Raise an alert at a path; repeats within ten seconds are told together.

        Args:
            name: Class of the alert.
            path: Where it happened.
            detail: Text for people.
            severity: ``None`` for the class's own.

        Raises:
            RecordPathError: ``path`` is none.
        """
        check_record_path(path)
        with self._lock:
            self._alert(name, path, detail, severity)
            return self._tell()

    def log(self, path: str, text: str, *, severity: Severity = "info") -> Record:
        """Publish a line of text at a path.

        Raises:
            RecordPathError: ``path`` is none.
        """
        check_record_path(path)
        with self._lock:
            self._add("log", path, {"sev": severity, "path": path, "text": clean_text(text)})
            return self._tell()[-1]

    def describe(self, **run: Any) -> Record:
        """Set fields of the run's identity; everybody is told by a new meta record.

        Args:
            run: Fields of ``run`` in the meta record: ``id``, ``label``, ``total_epochs``, ...
        """
        with self._lock:
            self._run.update(run)
            self._add_meta()
            return self._tell()[-1]

    def declare(self, key: str, reduction: Reduction | str, *, unit: str | None = None) -> Record:
        """Declare how a user's scalar rolls up, and its unit.

        Raises:
            ReductionConflict: The key's reduction is fixed.
            ConfigError: ``reduction`` is none.
        """
        with self._lock:
            self._reductions.declare(key, reduction)
            if unit is not None:
                self._units[key] = unit
            self._add_meta()
            return self._tell()[-1]

    def set_alive(self, path: str, alive: bool) -> list[Record]:
        """Mark a leaf as living or lost; the nodes above count again.

        Raises:
            RecordPathError: ``path`` is none.
        """
        return self.publish([NodeReport(path=path, alive=alive)])

    def watch_stalls(self, on: bool) -> None:
        """Say whether leaves that fall silent raise an alert."""
        with self._lock:
            self._watches_stalls = on

    def tick(self) -> list[Record]:
        """Tell what has become due: absorbed repeats of alerts, and leaves that fell silent."""
        with self._lock:
            self._add_events(self._lane.due(self._clock()))
            if self._watches_stalls:
                for node in self._nodes.values():
                    self._check_stalled(node)
            return self._tell()

    def flush_alerts(self) -> list[Record]:
        """Tell all absorbed repeats now; for the end of a run."""
        with self._lock:
            self._add_events(self._lane.due(self._clock(), everything=True))
            return self._tell()

    def replay(self, fields: Mapping[str, Any]) -> Record:
        """Take in a record of an earlier run as it was; nothing is computed from it.

        Raises:
            RecordPathError: Its path is none.
        """
        seq, kind = int(fields["seq"]), str(fields["kind"])
        path = None if kind == "meta" else check_record_path(str(fields["path"]))
        record = Record(seq, kind, path, encode_json(fields))
        with self._lock:
            self._seq = max(self._seq, seq)
            if path is None:
                self._run = dict(fields.get("run", {}))
                self._meta = record
            if kind == "node" and path is not None:
                self._replay_node(path, fields, record)
            else:
                self._shelve(record)
                if kind == "event":
                    self._lane.restore(dict(fields))
            self._made.append(record)
            return self._tell()[-1]

    # ------------------------------------------------------------ reading

    @property
    def seq(self) -> int:
        """Sequence number of the newest record."""
        return self._seq

    @property
    def meta(self) -> Record | None:
        """The newest meta record."""
        return self._meta

    @property
    def run(self) -> dict[str, Any]:
        """Identity of the run, as in the meta record."""
        with self._lock:
            return dict(self._run)

    def paths(self, prefix: str = ROOT) -> list[str]:
        """Return every known path at or below ``prefix``, in natural order."""
        with self._lock:
            nodes = sorted(self._nodes.values(), key=lambda node: node.sort_key)
        return [node.path for node in nodes if is_within(prefix, node.path)]

    def child_paths(self, path: str, children: slice = _ALL) -> list[str]:
        """Return the paths of a node's direct children, or of a slice of them, in order."""
        with self._lock:
            node = self._nodes.get(path)
            return [] if node is None else [child.path for child in node.children[children]]

    def current(self, path: str) -> dict[str, Any] | None:
        """Return the state of one node, newest field over older; ``None`` when unknown."""
        with self._lock:
            node = self._nodes.get(path)
            return None if node is None or node.current is None else deepcopy(node.current)

    def node(
        self,
        path: str,
        *,
        limit: int | None = None,
        offset: int = 0,
        sort: str | None = None,
        descending: bool = False,
        containing: str = "",
    ) -> NodeView:
        """Return one node and its direct children; costs what they are, not what the tree is.

        Args:
            path: The node.
            limit: Children to return at most.
            offset: Children to skip.
            sort: ``node``, ``work``, ``res.<name>`` or a metric key; ``None`` for natural order.
            descending: Whether the highest comes first.
            containing: Keep only children whose last segment contains this text.
        """
        with self._lock:
            return view_of(
                self._nodes.get(path),
                path,
                limit=limit,
                offset=offset,
                sort=sort,
                descending=descending,
                containing=containing,
            )

    def history(
        self,
        path: str,
        *,
        n: int = 512,
        since: int | None = None,
        alerts: str | None = None,
        children: slice = _ALL,
    ) -> HistorySlice:
        """Return the newest ``n`` records of a scope, or the first ``n`` after ``since``.

        Args:
            path: The scope.
            n: Records to return at most.
            since: Sequence number to go on from.
            alerts: Wider scope for events.
            children: Which of the scope's children to include, in natural order.
        """
        with self._lock:
            node = self._nodes.get(path)
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
        with self._lock:
            node = self._nodes.get(path)
            return [] if node is None else list(islice(node.ring.newest_first(), n))[::-1]

    def series(
        self,
        path: str,
        *,
        keys: Sequence[str] | None = None,
        points: int | None = None,
        start: float | None = None,
        end: float | None = None,
    ) -> SeriesSlice | None:
        """Return a node's whole history, or a part of it, merged to at most ``points``."""
        with self._lock:
            node = self._nodes.get(path)
            if node is None:
                return None
            return node.series.slice(keys=keys, points=points, start=start, end=end)

    def alerts(self, path: str = ROOT) -> list[dict[str, Any]]:
        """Return the live alerts of a subtree, most recent first."""
        with self._lock:
            return [a for a in reversed(self._lane.live()) if is_within(path, a["path"])]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every batch of new records, in order; returns how to stop.

        It is called while the tree is locked: it must only hand the records on.
        """
        with self._lock:
            self._listeners.append(listener)

        def leave() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return leave

    def follow(self, listener: Listener) -> tuple[list[Record], Callable[[], None]]:
        """Return every record that is kept, oldest first, and call ``listener`` with what comes.

        The second part of the answer ends it.
        """
        with self._lock:
            rings = [node.ring.oldest_first(since=0) for node in self._nodes.values()]
            shelves = [shelf.everything() for shelf in self._shelves.values()]
            kept = list(heapq.merge(*rings, *shelves, key=lambda record: record.seq))
            return kept, self.listen(listener)

    def subscribe(
        self,
        scope: str = ROOT,
        *,
        alerts: str | None = None,
        n: int = 512,
        since: int | None = None,
        limit: int = 10_000,
    ) -> Subscription:
        """Return the past of a scope and every record of it from here on, none lost or doubled.

        Args:
            scope: Path to look at.
            alerts: Wider scope for events.
            n: Length of the backlog.
            since: Sequence number to go on from, instead of the newest ``n``.
            limit: Records that may wait to be taken; older ones are dropped and counted.
        """
        with self._lock:
            subscription = Subscription(scope, alerts, limit)
            past = self.history(scope, n=n, since=since, alerts=alerts)
            subscription.backlog, subscription.has_gap = past
            subscription.attach(self.listen(subscription.offer))
            return subscription

    # ------------------------------------------------------------ one interval

    def _publish_interval(
        self, interval: Interval, reports: Sequence[NodeReport], own: dict[str, Any], ts: int
    ) -> dict[str, Any]:
        """Make the records of one interval; return the run's own values if none showed them."""
        above: dict[Node, bool] = {}
        for report in reports:
            node = self._node_at(report.path)
            if node is None:
                continue
            values = self._take(node, report)
            is_fresh = bool(report.res or report.host_res)
            over = node if node.children or len(node.sources) > 1 else node.parent
            if over is not node:
                self._add_node_record(node, leaf_fields(node, report, values), ts)
            while over is not None:
                above[over] = above.get(over, False) or is_fresh
                over = over.parent
        for node in sorted(above, key=lambda n: n.path.count("/"), reverse=True):
            fields = interior_fields(
                node, interval, reports[-1], self._reductions, has_fresh_res=above[node]
            )
            if node is self._root and own:
                fields["metrics"] = {**fields.get("metrics", {}), **own}
                own = {}
            self._add_node_record(node, fields, ts)
        return own

    def _take(self, node: Node, report: NodeReport) -> NodeValues:
        """Store a leaf's report at its node."""
        metrics = self._allowed(node, report.metrics)
        values = measured(metrics, report.work, nonfinite=report.nonfinite)
        values.kwork = dict(report.kwork)
        if report.has_values:
            now = self._clock()
            node.intervals_s.append(now - node.reported_at)
            node.reported_at, node.stalled = now, False
            if report.producer not in node.sources and (node.sources or node.children):
                warn_once(
                    _logger,
                    "records: several producers claim the node %s; their numbers are combined",
                    node.path,
                )
            held = (report.interval, values)
            node.sources.setdefault(report.producer, {})[report.interval[0]] = held
            node.latest[report.interval[0]] = held
        if report.label is not None:
            node.label = clean_text(report.label)
        if report.device is not None:
            node.device = report.device
        node.alive = report.alive
        if report.res:
            node.res = node.own_res = dict(report.res)
        if report.host_res:
            (node.parent or node).host_res = dict(report.host_res)
        for key in values.nonfinite:
            self._notice_nonfinite(node, key, values)
        return values

    def _add_node_record(self, node: Node, fields: Mapping[str, Any], ts: int) -> None:
        self._seq += 1
        body: dict[str, Any] = {
            "v": VERSION,
            "seq": self._seq,
            "ts": ts,
            "sev": "warn" if "nonfinite" in fields else "info",
            "kind": "node",
            "path": node.path,
            **fields,
        }
        if node.label is not None:
            body["label"] = node.label
        if node.device is not None:
            body["device"] = node.device
        if node.children:
            body["alive"] = node.alive_count
            body["children"] = len(node.children)
        else:
            body["alive"] = node.alive
        line = encode_json(body)
        node.ring.add(self._seq, line, nodes=len(self._nodes))
        node.keep(body)
        self._made.append(Record(self._seq, "node", node.path, line))

    def _replay_node(self, path: str, fields: Mapping[str, Any], record: Record) -> None:
        node = self._node_at(path)
        if node is None:
            return
        node.label = fields.get("label", node.label)
        node.device = fields.get("device", node.device)
        if isinstance(fields.get("alive"), bool):
            node.alive = bool(fields["alive"])
        node.ring.add(record.seq, record.line, nodes=len(self._nodes))
        node.keep(fields)

    # ------------------------------------------------------------ nodes and caps

    def _node_at(self, path: str) -> Node | None:
        known = self._nodes.get(path)
        if known is not None:
            return known
        above = parent_path(path)
        parent = None if above is None else self._node_at(above)
        if parent is None:
            return None
        if len(self._nodes) >= MAX_PATHS:
            self._refuse("paths", ROOT, f"more than {MAX_PATHS} paths; {path} is left out")
            return None
        return self._make_node(path, parent)

    def _make_node(self, path: str, parent: Node | None) -> Node:
        node = Node(path, parent, self._clock())
        self._nodes[path] = node
        if parent is not None:
            parent.adopt(node)
        return node

    def _allowed(self, node: Node, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return the metrics without those that no node may have."""
        if metrics.keys() <= node.keys:
            return metrics
        allowed: dict[str, float] = {}
        for key, value in metrics.items():
            if key not in node.keys and not is_metric_key(key):
                shown = repr(key if len(key) <= 40 else f"{key[:40]}...")
                why = f"metric {shown} is left out: a name has 1 to 128 printable characters"
                self._refuse("name", node.path, why)
            elif key not in node.keys and len(node.keys) >= MAX_KEYS:
                why = f"more than {MAX_KEYS} metrics; {key!r} is left out"
                self._refuse("keys", node.path, why)
            else:
                node.keys.add(key)
                allowed[key] = value
        return allowed

    def _refuse(self, what: str, path: str, detail: str) -> None:
        if (what, path) not in self._refused:
            self._refused.add((what, path))
            self._alert("overflow", path, detail, None)

    # ------------------------------------------------------------ alerts and other kinds

    def _alert(self, name: str, path: str, detail: str, severity: Severity | None) -> None:
        chosen = severity or SEVERITIES.get(name, "warn")
        text, now, ts = clean_text(detail), self._clock(), self._now_ms()
        self._add_events(self._lane.occur(name, path, chosen, text, now=now, ts=ts))

    def _notice_nonfinite(self, node: Node, key: str, values: NodeValues) -> None:
        if (node.path, key) not in self._nonfinite_seen:
            self._nonfinite_seen.add((node.path, key))
            kinds = ", ".join(sorted(values.nonfinite[key]))
            severity: Severity = "critical" if key == "loss" else "warn"
            self._alert("nonfinite", node.path, f"{key} became {kinds}", severity)

    def _check_stalled(self, node: Node) -> None:
        if node.children or node.stalled or not node.alive or not node.intervals_s:
            return
        silent = self._clock() - node.reported_at
        if silent > max(_STALL_FLOOR_S, _STALL_FACTOR * median(node.intervals_s)):
            node.stalled = True
            self._alert("stalled", node.path, f"no report for {silent:.0f} s", None)

    def _add_events(self, occurrences: Iterable[Occurrence]) -> None:
        for name, path, severity, detail, times, total in occurrences:
            fields = {"sev": severity, "path": path, "class": name, "detail": detail}
            self._add("event", path, {**fields, "count": times, "total": total})

    def _add_meta(self) -> None:
        fields = {"reductions": self._reductions.table(), "units": self._units, "run": self._run}
        self._meta = self._add("meta", None, {"sev": "info", **fields})

    def _add(self, kind: str, path: str | None, fields: Mapping[str, Any]) -> Record:
        self._seq += 1
        ts = self._now_ms()
        body = {"v": VERSION, "seq": self._seq, "ts": ts, "kind": kind, **fields}
        record = Record(self._seq, kind, path, encode_json(body))
        self._shelve(record)
        self._made.append(record)
        return record

    def _shelve(self, record: Record) -> None:
        self._shelves.setdefault(record.kind, RecordShelf(record.kind)).add(record)

    def _tell(self) -> list[Record]:
        """Hand all records made by this call to the listeners at once, so that order holds."""
        made, self._made = self._made, []
        if made:
            for listener in tuple(self._listeners):
                listener(made)
        return made

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)
