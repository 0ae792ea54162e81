"""Times of the nodes of one call, and what a profile says about them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flodl.metrics.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """Time of one node in the last call.

    Attributes:
        id: The node.
        tag: Its first tag, or empty.
        seconds: On its device: from event pairs on CUDA, else what the host took.
        host_seconds: What the host took; on CUDA that is only the launch.
        level: Level of the node.
        children: Its own nodes, when it is a graph and the profile is deep.
    """

    id: str
    tag: str
    seconds: float
    host_seconds: float
    level: int
    children: tuple[NodeTiming, ...] = ()


@dataclass(frozen=True, slots=True)
class LevelTiming:
    """Time of one level: nodes that do not depend on each other.

    Attributes:
        index: The level.
        wall: Seconds from the begin of its first node to the end of its last, other levels' nodes
            between them left out.
        sum_nodes: Sum of its nodes' seconds.
        num_nodes: How many nodes it has.
        parallelism: ``sum_nodes / wall``; 1.0 for a single node.
    """

    index: int
    wall: float
    sum_nodes: float
    num_nodes: int
    parallelism: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of one call went, in seconds."""

    total: float
    levels: tuple[LevelTiming, ...]
    nodes: tuple[NodeTiming, ...]

    def __str__(self) -> str:
        lines = [f"{'node':<28} {'level':>5} {'ms':>10} {'host ms':>10} {'share':>7}"]
        lines += _rows(self.nodes, self.total, "")
        lines.append(f"{'total':<28} {'':>5} {self.total * 1e3:>10.3f}")
        return "\n".join(lines)


def _rows(nodes: tuple[NodeTiming, ...], total: float, indent: str) -> list[str]:
    lines = []
    for node in nodes:
        name = f"{indent}{node.id}{f' #{node.tag}' if node.tag else ''}"
        share = node.seconds / total if total else 0.0
        lines.append(
            f"{name:<28} {node.level:>5} {node.seconds * 1e3:>10.3f} "
            f"{node.host_seconds * 1e3:>10.3f} {share:>7.1%}"
        )
        lines += _rows(node.children, total, indent + "  ")
    return lines


@dataclass(slots=True)
class _Span:
    node: str
    begin: float
    end: float
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None


class NodeClock:
    """Begin and end of every node of the last profiled call.

    Attributes:
        path: Where the graph lies, for the names in torch's profiler.
        history: Seconds by tag, batch by batch and epoch by epoch.
    """

    def __init__(self) -> None:
        self.path = ""
        self.history = History()
        self._spans: list[_Span] = []
        self._read: dict[str, tuple[float, float, float]] | None = None

    def restart(self) -> None:
        """Forget the previous call."""
        self._spans = []
        self._read = None

    def add(self, span: _Span) -> None:
        """Add the times of one node."""
        self._spans.append(span)

    @property
    def is_empty(self) -> bool:
        """Whether no call was timed."""
        return not self._spans

    def times(self) -> dict[str, tuple[float, float, float]]:
        """Return begin, seconds and host seconds by node; waits once for the device."""
        if self._read is None:
            if any(span.events for span in self._spans):
                torch.cuda.synchronize()
            self._read = {span.node: _seconds(span, self._spans[0]) for span in self._spans}
        return self._read


def _seconds(span: _Span, first: _Span) -> tuple[float, float, float]:
    host = span.end - span.begin
    if span.events is None or first.events is None:
        return span.begin - first.begin, host, host
    begin, end = span.events
    # Events measure in milliseconds.
    return first.events[0].elapsed_time(begin) / 1e3, begin.elapsed_time(end) / 1e3, host


class TimedNode:
    """Times its block, which runs one node, and names it in torch's profiler where that is on.

    Args:
        clock: What takes the times.
        node: Id of the node.
    """

    __slots__ = ("_begin", "_clock", "_events", "_node", "_range")

    def __init__(self, clock: NodeClock, node: str) -> None:
        self._clock = clock
        self._node = node
        self._range: torch.profiler.record_function | None = None
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    def __enter__(self) -> None:
        if torch.cuda.is_initialized():
            self._events = (
                torch.cuda.Event(enable_timing=True),
                torch.cuda.Event(enable_timing=True),
            )
            self._events[0].record()
        self._begin = time.perf_counter()
        if torch.autograd.profiler._is_profiler_enabled:  # noqa: SLF001 - else its name costs 20 us
            name = f"flodl::{self._clock.path}/{self._node}"
            self._range = torch.profiler.record_function(name)
            self._range.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self._range is not None:
            self._range.__exit__(*raised)
        end = time.perf_counter()
        if raised[0] is not None:
            return
        if self._events is not None:
            self._events[1].record()
        self._clock.add(_Span(self._node, self._begin, end, self._events))


def make_profile(
    times: Mapping[str, tuple[float, float, float]],
    level_of: Mapping[str, int],
    tag_of: Mapping[str, str],
    children: Mapping[str, tuple[NodeTiming, ...]],
) -> Profile:
    """Return the profile of a call from the times of its nodes."""
    nodes = tuple(
        NodeTiming(node, tag_of.get(node, ""), spent, host, level_of[node], children.get(node, ()))
        for node, (_, spent, host) in times.items()
    )
    levels = []
    for index in sorted({level_of[node] for node in times}):
        members = [node for node in times if level_of[node] == index]
        wall = _wall(members, times)
        total = sum(times[node][1] for node in members)
        parallelism = total / wall if wall and len(members) > 1 else 1.0
        levels.append(LevelTiming(index, wall, total, len(members), parallelism))
    begins = [begin for begin, _, _ in times.values()]
    ends = [begin + spent for begin, spent, _ in times.values()]
    return Profile(max(ends) - min(begins), tuple(levels), nodes)


def _wall(members: list[str], times: Mapping[str, tuple[float, float, float]]) -> float:
    begin = min(times[node][0] for node in members)
    end = max(times[node][0] + times[node][1] for node in members)
    between = sum(
        spent
        for node, (start, spent, _) in times.items()
        if node not in members and begin <= start and start + spent <= end
    )
    return end - begin - between
