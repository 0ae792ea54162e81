"""What a tree notices by itself: caps that are hit, values that are not finite, silent leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from flodl.records.alerts import SEVERITIES, AlertLane, Occurrence
from flodl.records.node import Node
from flodl.records.record import Severity, clean_text
from flodl.records.rollup import NodeValues
from flodl.records.store import RecordStore

STALL_FLOOR_S = 30.0
STALL_FACTOR = 5.0


class Alarms:
    """Turns what happens into event records, each cause once. Its owner locks.

    Args:
        store: Where the records go.
        clock: Monotonic seconds.
    """

    def __init__(self, store: RecordStore, clock: Callable[[], float]) -> None:
        self.watches_stalls = False
        """Whether leaves that fall silent are told of."""
        self._store = store
        self._clock = clock
        self._lane = AlertLane()
        self._refused: set[tuple[str, str]] = set()
        self._nonfinite: set[tuple[str, str]] = set()

    def raise_alert(
        self, name: str, path: str, detail: str, severity: Severity | None = None
    ) -> None:
        """Tell of one occurrence; ``None`` means the class's own severity."""
        chosen = severity or SEVERITIES.get(name, "warn")
        now, ts = self._clock(), self._store.now_ms()
        self._add(self._lane.occur(name, path, chosen, clean_text(detail), now=now, ts=ts))

    def refuse(self, what: str, path: str, detail: str) -> None:
        """Tell that something had no room, once per cause and path."""
        if (what, path) not in self._refused:
            self._refused.add((what, path))
            self.raise_alert("overflow", path, detail)

    def notice_nonfinite(self, node: Node, values: NodeValues) -> None:
        """Tell of keys that have become not finite at a leaf, each once."""
        for key, counts in values.nonfinite.items():
            if (node.path, key) not in self._nonfinite:
                self._nonfinite.add((node.path, key))
                severity: Severity = "critical" if key == "loss" else "warn"
                detail = f"{key} became {', '.join(sorted(counts))}"
                self.raise_alert("nonfinite", node.path, detail, severity)

    def tell_due(self, *, everything: bool = False) -> None:
        """Tell of absorbed repeats that are due, and of leaves that have fallen silent."""
        self._add(self._lane.due(self._clock(), everything=everything))
        if self.watches_stalls:
            for node in tuple(self._store.nodes.values()):
                self._check_stalled(node)

    def live(self) -> list[dict[str, Any]]:
        """Return the live alerts, most recent first."""
        return self._lane.live()[::-1]

    def restore(self, event: dict[str, Any]) -> None:
        """Take in an event record of an earlier run, without telling it again."""
        self._lane.restore(event)

    def _check_stalled(self, node: Node) -> None:
        if node.children or node.stalled or not node.alive or not node.intervals_s:
            return
        silent = self._clock() - node.reported_at
        if silent > max(STALL_FLOOR_S, STALL_FACTOR * median(node.intervals_s)):
            node.stalled = True
            self.raise_alert("stalled", node.path, f"no report for {silent:.0f} s")

    def _add(self, occurrences: Iterable[Occurrence]) -> None:
        for name, path, severity, detail, times, total in occurrences:
            fields = {"sev": severity, "path": path, "class": name, "detail": detail}
            self._store.add("event", path, {**fields, "count": times, "total": total})
