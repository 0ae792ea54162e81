"""From the reports of one interval to records of the leaves and of every node above them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flodl.core.log import warn_once
from flodl.core.paths import ROOT, check_record_path
from flodl.records.alarms import Alarms
from flodl.records.levels import interior_fields, leaf_fields
from flodl.records.node import Interval, Node, NodeReport
from flodl.records.record import clean_text, is_metric_key
from flodl.records.rollup import NodeValues, Reductions, measured
from flodl.records.store import MAX_PATHS, RecordStore

MAX_KEYS = 256
_logger = logging.getLogger(__name__)


class Intake:
    """Takes in reports and publishes what they amount to at every level. Its owner locks.

    Args:
        store: Where nodes and records are.
        alarms: Told of what is refused and of what is not finite.
        reductions: How keys roll up.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: RecordStore,
        alarms: Alarms,
        reductions: Reductions,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._alarms = alarms
        self._reductions = reductions
        self._clock = clock

    def publish(
        self,
        reports: Iterable[NodeReport],
        engine: Mapping[str, float] | None,
        of_epoch: int | None = None,
    ) -> None:
        """Publish reports, each interval by itself, and the run's own values at the root.

        Args:
            reports: One per leaf and interval.
            engine: The run's own values.
            of_epoch: The epoch that those belong to where no report goes with them.

        Raises:
            RecordPathError: A report's path is none; nothing was published.
        """
        by_interval: dict[Interval, list[NodeReport]] = {}
        for report in reports:
            check_record_path(report.path)
            by_interval.setdefault(report.interval, []).append(report)
        ts = self._store.now_ms()
        own = dict(measured(engine, 0).metrics) if engine else {}
        for interval, group in by_interval.items():
            own = self._publish_interval(interval, group, own, ts)
        if own:
            of = {} if of_epoch is None else {"epoch_complete": True, "epoch": of_epoch}
            self._store.add_of_node(self._store.root, {**of, "metrics": own}, ts)

    def node_at(self, path: str) -> Node | None:
        """Return the node at a path; where there are too many, say so and return ``None``."""
        node = self._store.node_at(path)
        if node is None:
            self._alarms.refuse("paths", ROOT, f"more than {MAX_PATHS} paths; {path} is left out")
        return node

    def _publish_interval(
        self, interval: Interval, reports: Sequence[NodeReport], own: dict[str, Any], ts: int
    ) -> dict[str, Any]:
        """Make the records of one interval; return the run's own values if none showed them."""
        above: dict[Node, bool] = {}
        # all nodes first: whether one is a leaf is known only then
        nodes = [self.node_at(report.path) for report in reports]
        for report, node in zip(reports, nodes, strict=True):
            if node is None:
                continue
            values = self._take(node, report)
            is_fresh = bool(report.res or report.host_res)
            over = node if node.children or len(node.sources) > 1 else node.parent
            if over is not node:
                self._store.add_of_node(node, leaf_fields(node, report, values), ts)
            while over is not None:
                above[over] = above.get(over, False) or is_fresh
                over = over.parent
        for node in sorted(above, key=lambda n: n.path.count("/"), reverse=True):
            fields = interior_fields(
                node, interval, reports[-1], self._reductions, has_fresh_res=above[node]
            )
            if node is self._store.root and own:
                fields["metrics"] = {**fields.get("metrics", {}), **own}
                own = {}
            self._store.add_of_node(node, fields, ts)
        return own

    def _take(self, node: Node, report: NodeReport) -> NodeValues:
        """Store a leaf's report at its node."""
        metrics = self._allowed(node, report.metrics)
        values = measured(metrics, report.work, nonfinite=report.nonfinite)
        values.kwork = dict(report.kwork)
        if report.has_values:
            self._hold(node, report, values)
        if report.label is not None:
            node.label = clean_text(report.label)
        if report.device is not None:
            node.device = report.device
        node.alive = report.alive
        if report.res:
            node.res = node.own_res = dict(report.res)
        if report.host_res:
            (node.parent or node).host_res = dict(report.host_res)
        self._alarms.notice_nonfinite(node, values)
        return values

    def _hold(self, node: Node, report: NodeReport, values: NodeValues) -> None:
        """Keep a leaf's values by interval and producer, for the node above."""
        now = self._clock()
        node.intervals_s.append(now - node.reported_at)
        node.reported_at, node.stalled = now, False
        rivals = node.sources or any(child.latest for child in node.children)
        if rivals and report.producer not in node.sources:
            warn_once(
                _logger,
                "records: several producers claim the node %s; their numbers are combined",
                node.path,
            )
        held = (report.interval, values)
        node.sources.setdefault(report.producer, {})[report.interval[0]] = held
        node.latest[report.interval[0]] = held

    def _allowed(self, node: Node, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return the metrics without those that no node may have."""
        if metrics.keys() <= node.keys:
            return metrics
        allowed: dict[str, float] = {}
        for key, value in metrics.items():
            if key not in node.keys and not is_metric_key(key):
                shown = repr(key if len(key) <= 40 else f"{key[:40]}...")
                why = f"metric {shown} is left out: a name has 1 to 128 printable characters"
                self._alarms.refuse("name", node.path, why)
            elif key not in node.keys and len(node.keys) >= MAX_KEYS:
                why = f"more than {MAX_KEYS} metrics; {key!r} is left out"
                self._alarms.refuse("keys", node.path, why)
            else:
                node.keys.add(key)
                allowed[key] = value
        return allowed
