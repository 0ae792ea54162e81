"""One place of the record tree: what it reported last, and what it keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flodl.core.paths import natural_key
from flodl.records.record import encode_json
from flodl.records.ring import RecordRing
from flodl.records.rollup import NodeValues
from flodl.records.series import TieredSeries

Cadence = Literal["window", "epoch"]
Interval = tuple[Cadence, int | None]

LEAF_BUCKETS = 256
INTERIOR_BUCKETS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """What one producer measured over one interval, at a leaf of the tree."""

    path: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Values by key. Not-finite ones are kept visible, absent keys were not measured."""
    work: float = 0
    """Samples behind the values."""
    tick: int | None = None
    """Number of the window within the run; ``None`` for epochs and for mere resources."""
    epoch: int | None = None
    """0-based."""
    epoch_complete: bool = False
    """Whether this is the report over a whole epoch."""
    step: int | None = None
    """Global optimizer step at the end of the interval."""
    restart: bool = False
    """Whether the run was resumed, or the epoch is repeated, since the last report."""
    kwork: Mapping[str, float] = field(default_factory=dict)
    """Samples behind single keys, where they differ from ``work``."""
    nonfinite: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts of not-finite values by key, where the producer counted them."""
    res: Mapping[str, float] = field(default_factory=dict)
    """Freshly sampled resources of the device."""
    host_res: Mapping[str, float] = field(default_factory=dict)
    """CPU and memory of the host, from the one member that reports for it."""
    label: str | None = None
    """Name for people, such as the GPU's model."""
    device: int | None = None
    """Physical index of the device."""
    alive: bool = True
    producer: str = ""
    """Who reports; two producers at one path are both counted."""

    @property
    def interval(self) -> Interval:
        """What the values belong to; only values of one interval are combined."""
        return ("epoch", self.epoch) if self.epoch_complete else ("window", self.tick)

    @property
    def has_values(self) -> bool:
        """Whether anything was measured over the interval, other than resources."""
        return bool(self.metrics or self.nonfinite or self.work)


class Node:
    """A node of the tree, with its newest records and its whole history in fixed memory."""

    __slots__ = (
        "_current_line",
        "alive",
        "children",
        "current",
        "device",
        "host_res",
        "intervals_s",
        "keys",
        "label",
        "latest",
        "own_res",
        "parent",
        "path",
        "reported_at",
        "res",
        "ring",
        "series",
        "sort_key",
        "sources",
        "stalled",
        "summary",
        "windowed",
    )

    def __init__(self, path: str, parent: Node | None, now: float) -> None:
        self.path = path
        self.parent = parent
        self.sort_key = natural_key(path)
        self.children: list[Node] = []
        self.sources: dict[str, dict[Cadence, tuple[Interval, NodeValues]]] = {}
        self.latest: dict[Cadence, tuple[Interval, NodeValues]] = {}
        self.own_res: dict[str, float] = {}
        self.res: dict[str, float] = {}
        self.host_res: dict[str, float] = {}
        self.label: str | None = None
        self.device: int | None = None
        self.alive = True
        self.keys: set[str] = set()
        self.current: dict[str, Any] | None = None
        self._current_line: bytes | None = None
        self.ring = RecordRing(path)
        self.series = TieredSeries(INTERIOR_BUCKETS if parent is None else LEAF_BUCKETS)
        self.windowed: set[str] = set()
        self.summary: dict[str, Any] | None = None
        self.reported_at = now
        self.intervals_s: deque[float] = deque(maxlen=21)
        self.stalled = False

    @property
    def alive_count(self) -> int:
        """Number of direct children that live."""
        return sum(1 for child in self.children if child.is_alive)

    @property
    def is_alive(self) -> bool:
        """Whether the node, or anything below it, lives."""
        return self.alive_count > 0 if self.children else self.alive

    def facts(self) -> dict[str, Any]:
        """Return what every record of the node tells beside its numbers."""
        facts: dict[str, Any] = {}
        if self.label is not None:
            facts["label"] = self.label
        if self.device is not None:
            facts["device"] = self.device
        if self.children:
            facts["alive"] = self.alive_count
            facts["children"] = len(self.children)
        else:
            facts["alive"] = self.alive
        return facts

    def restore(self, body: Mapping[str, Any]) -> None:
        """Take over what a record of an earlier run tells beside numbers."""
        self.label = body.get("label", self.label)
        self.device = body.get("device", self.device)
        if isinstance(body.get("alive"), bool):
            self.alive = bool(body["alive"])

    def adopt(self, child: Node) -> None:
        """Insert a child in natural order."""
        at = len(self.children)
        while at and self.children[at - 1].sort_key > child.sort_key:
            at -= 1
        self.children.insert(at, child)
        self.series.capacity = INTERIOR_BUCKETS
        self.summary = None

    def keep(self, body: Mapping[str, Any]) -> None:
        """Lay a new record over the current state, field by field."""
        self.current = {} if self.current is None else self.current
        overlay(self.current, body)
        self._current_line = None
        self.summary = None
        if self.parent is not None:
            self.parent.summary = None
        self._keep_series(body)

    def current_line(self) -> bytes | None:
        """Return the JSON of the current state, made once per change."""
        if self._current_line is None and self.current is not None:
            self._current_line = encode_json(self.current)
        return self._current_line

    def _keep_series(self, body: Mapping[str, Any]) -> None:
        values = body.get("metrics", {})
        if None in values.values():
            values = {key: value for key, value in values.items() if value is not None}
        if "res" in body:
            values = {**values, **{f"res.{key}": value for key, value in body["res"].items()}}
        if body.get("epoch_complete"):
            # an epoch's mean among its own windows would draw saw teeth
            values = {key: value for key, value in values.items() if key not in self.windowed}
            self.windowed.clear()
        else:
            self.windowed.update(values)
        if values:
            self.series.add(body["ts"], values, epoch=body.get("epoch"), step=body.get("step"))


def overlay(state: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Lay a record over a state in place: newer fields win, nested ones key by key."""
    nonfinite = state.get("nonfinite")
    if nonfinite:
        # a key that was measured anew is no longer what it was
        kept = {k: v for k, v in nonfinite.items() if k not in new.get("metrics", ())}
    else:
        kept = {}
    for key, value in new.items():
        if isinstance(value, dict):
            held = state.setdefault(key, {})
            held.update(value)
        else:
            state[key] = value
    kept.update(new.get("nonfinite", {}))
    if kept:
        state["nonfinite"] = kept
    else:
        state.pop("nonfinite", None)
    state.pop("epoch_complete", None)
    state.pop("restart", None)
