"""What a viewer of one level sees: the node, a page of its children, and their spread."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

from flodl.records.node import Node


class NodeView(NamedTuple):
    """A node and its direct children; records are JSON lines."""

    path: str
    known: bool
    node: bytes | None
    children: list[bytes]
    total_children: int
    """Children before ``limit`` and ``offset``, after the filter."""
    summary: dict[str, Any]
    """Per metric over all children: ``min``, ``p50``, ``max`` and where the extremes are."""


def view_of(
    node: Node | None,
    path: str,
    *,
    limit: int | None,
    offset: int,
    sort: str | None,
    descending: bool,
    containing: str,
) -> NodeView:
    """Return the view of one level; of an unknown path an empty one."""
    if node is None:
        return NodeView(path, known=False, node=None, children=[], total_children=0, summary={})
    children = node.children
    if containing:
        wanted = containing.casefold()
        children = [c for c in children if wanted in c.path.rpartition("/")[2].casefold()]
    if sort is not None:
        children = _sorted(children, sort, descending=descending)
    elif descending:
        children = children[::-1]
    page = children[offset:] if limit is None else children[offset : offset + limit]
    if node.summary is None:
        node.summary = _summary(node.children)
    return NodeView(
        path,
        known=node.current is not None or bool(node.children),
        node=node.current_line(),
        children=[line for child in page if (line := child.current_line()) is not None],
        total_children=len(children),
        summary=node.summary,
    )


def _sorted(children: list[Node], sort: str, *, descending: bool) -> list[Node]:
    value = _value_reader(sort)
    present = [(value(child), child) for child in children]
    known = [(v, child) for v, child in present if v is not None]
    # natural order among equals, whatever the direction
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [child for _, child in known] + [child for v, child in present if v is None]


def _value_reader(sort: str) -> Callable[[Node], Any]:
    if sort == "node":
        return lambda node: node.sort_key
    if sort == "work":
        return lambda node: (node.current or {}).get("work")
    if sort.startswith("res."):
        name = sort.removeprefix("res.")
        return lambda node: (node.current or {}).get("res", {}).get(name)
    return lambda node: (node.current or {}).get("metrics", {}).get(sort)


def _summary(children: list[Node]) -> dict[str, Any]:
    found: dict[str, list[tuple[float, str]]] = {}
    for child in children:
        if child.current is None:
            continue
        path = child.path
        for key, value in child.current.get("metrics", {}).items():
            if value is not None:
                found.setdefault(key, []).append((value, path))
    summary = {}
    for key, pairs in found.items():
        values = [value for value, _ in pairs]
        low, high = min(values), max(values)
        summary[key] = {
            "min": low,
            "p50": median(values),
            "max": high,
            "min_path": pairs[values.index(low)][1],
            "max_path": pairs[values.index(high)][1],
        }
    return summary
