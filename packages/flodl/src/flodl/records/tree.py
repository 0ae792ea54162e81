"""The record tree of a run: leaves report, every other node sums up its direct children."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from threading import RLock
from typing import Any

from flodl.core.paths import ROOT, check_record_path, is_within
from flodl.records.alarms import Alarms
from flodl.records.intake import Intake
from flodl.records.node import NodeReport
from flodl.records.record import Record, Severity, clean_text, encode_json
from flodl.records.rollup import Reduction, Reductions
from flodl.records.series import SeriesSlice
from flodl.records.store import ALL_CHILDREN, HistorySlice, Listener, RecordStore
from flodl.records.subscription import Subscription
from flodl.records.view import NodeView, view_of


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
        self._lock = RLock()
        self._store = RecordStore(clock, wall)
        self._alarms = Alarms(self._store, clock)
        self._reductions = Reductions()
        self._intake = Intake(self._store, self._alarms, self._reductions, clock)
        self._run: dict[str, Any] = {}
        self._units: dict[str, str] = {"throughput": "samples/ms"}
        self._meta: Record | None = None

    # ------------------------------------------------------------ writing

    def publish(
        self,
        reports: Iterable[NodeReport],
        *,
        engine: Mapping[str, float] | None = None,
        of_epoch: int | None = None,
    ) -> list[Record]:
        """Take in what leaves measured and bring every node above them up to date.

        Reports of one interval that belong together go in together: each node above is computed
        once per interval, from those of its children that reported it.

        Args:
            reports: One per leaf and interval.
            engine: Values of the run itself (anchor, synchronization times), shown at the root.
            of_epoch: The epoch that those belong to where no report goes with them.

        Returns:
            The records made, leaves first, the root last.

        Raises:
            RecordPathError: A report's path is none; nothing was published.
        """
        with self._lock:
            self._intake.publish(reports, engine, of_epoch)
            return self._store.tell()

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
            self._alarms.raise_alert(name, path, detail, severity)
            return self._store.tell()

    def log(self, path: str, text: str, *, severity: Severity = "info") -> Record:
        """Publish a line of text at a path.

        Raises:
            RecordPathError: ``path`` is none.
        """
        check_record_path(path)
        with self._lock:
            self._store.add("log", path, {"sev": severity, "path": path, "text": clean_text(text)})
            return self._store.tell()[-1]

    def describe(self, **run: Any) -> Record:
        """Set fields of the run's identity; everybody is told by a new meta record.

        Args:
            run: Fields of ``run`` in the meta record: ``id``, ``label``, ``total_epochs``, ...
        """
        with self._lock:
            self._run.update(run)
            self._add_meta()
            return self._store.tell()[-1]

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
            return self._store.tell()[-1]

    def set_alive(self, path: str, alive: bool) -> list[Record]:
        """Mark a leaf as living or lost; the nodes above count again.

        Raises:
            RecordPathError: ``path`` is none.
        """
        return self.publish([NodeReport(path=path, alive=alive)])

    def watch_stalls(self, on: bool) -> None:
        """Say whether leaves that fall silent raise an alert."""
        with self._lock:
            self._alarms.watches_stalls = on

    def tick(self) -> list[Record]:
        """Tell what has become due: absorbed repeats of alerts, and leaves that fell silent."""
        with self._lock:
            self._alarms.tell_due()
            return self._store.tell()

    def flush_alerts(self) -> list[Record]:
        """Tell all absorbed repeats now; for the end of a run."""
        with self._lock:
            self._alarms.tell_due(everything=True)
            return self._store.tell()

    def replay(self, fields: Mapping[str, Any]) -> Record:
        """Take in a record of an earlier run as it was; nothing is computed from it.

        Raises:
            RecordPathError: Its path is none.
        """
        seq, kind = int(fields["seq"]), str(fields["kind"])
        path = None if kind == "meta" else check_record_path(str(fields["path"]))
        record = Record(seq, kind, path, encode_json(fields))
        with self._lock:
            if path is None:
                self._run = dict(fields.get("run", {}))
                self._meta = record
            if kind == "node" and path is not None:
                node = self._intake.node_at(path)
                if node is not None:
                    node.restore(fields)
                    self._store.keep_of_node(node, fields, record)
            else:
                self._store.keep(record)
                if kind == "event":
                    self._alarms.restore(dict(fields))
            self._store.tell()
            return record

    # ------------------------------------------------------------ reading

    @property
    def seq(self) -> int:
        """Sequence number of the newest record."""
        return self._store.seq

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
            nodes = self._store.in_natural_order()
        return [node.path for node in nodes if is_within(prefix, node.path)]

    def child_paths(self, path: str, children: slice = ALL_CHILDREN) -> list[str]:
        """Return the paths of a node's direct children, or of a slice of them, in order."""
        with self._lock:
            node = self._store.nodes.get(path)
            return [] if node is None else [child.path for child in node.children[children]]

    def current(self, path: str) -> dict[str, Any] | None:
        """Return the state of one node, newest field over older; ``None`` when unknown."""
        with self._lock:
            node = self._store.nodes.get(path)
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
                self._store.nodes.get(path),
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
        children: slice = ALL_CHILDREN,
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
            return self._store.history(path, n=n, since=since, alerts=alerts, children=children)

    def recent_rows(self, path: str, n: int) -> list[Record]:
        """Return a node's own newest ``n`` records, oldest first."""
        with self._lock:
            return self._store.recent_rows(path, n)

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
            node = self._store.nodes.get(path)
            if node is None:
                return None
            return node.series.slice(keys=keys, points=points, start=start, end=end)

    def alerts(self, path: str = ROOT) -> list[dict[str, Any]]:
        """Return the live alerts of a subtree, most recent first."""
        with self._lock:
            return [a for a in self._alarms.live() if is_within(path, a["path"])]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every batch of new records, in order; returns how to stop.

        It is called while the tree is locked: it must only hand the records on.
        """
        with self._lock:
            self._store.listen(listener)

        def leave() -> None:
            with self._lock:
                self._store.leave(listener)

        return leave

    def follow(self, listener: Listener) -> tuple[list[Record], Callable[[], None]]:
        """Return every record that is kept, oldest first, and call ``listener`` with what comes.

        The second part of the answer ends it.
        """
        with self._lock:
            return self._store.everything(), self.listen(listener)

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

    def _add_meta(self) -> None:
        fields = {"reductions": self._reductions.table(), "units": self._units, "run": self._run}
        self._meta = self._store.add("meta", None, {"sev": "info", **fields})
