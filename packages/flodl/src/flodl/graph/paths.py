"""Dotted paths: which graph and which name a path means.

A dot is the boundary of a labeled graph, and nothing else. Graphs without a label are
transparent: their labeled children belong to the nearest graph above.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from flodl.core.errors import FlowError, GraphPathError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.graph.nodes.traces import LoopBody

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import nn

    from flodl.graph.ir import Node, Tag


class PathKind(StrEnum):
    """What a path leads to."""

    SUBGRAPH = "subgraph"
    TAG = "tag"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: a graph, or a name in it.

    Attributes:
        kind: What it is.
        graph: The subgraph itself, or the graph that has the tag or trace.
        name: The tag or trace; empty for a subgraph.
        index: Entry of a trace, if the path names one.
    """

    kind: PathKind
    graph: GraphBase
    name: str = ""
    index: int | None = None


_INDEXED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)\[(?P<index>-?\d+)\]")


def children_of(graph: nn.Module) -> dict[str, GraphBase]:
    """Return the labeled graphs one level below, in build order, each once."""
    return {child.label or "": child for child in _labeled(graph, set())}


def _labeled(module: nn.Module, seen: set[int]) -> Iterator[GraphBase]:
    for child in _in_order(module):
        if id(child) in seen:
            continue
        seen.add(id(child))
        if isinstance(child, GraphBase) and child.label:
            yield child
        else:
            yield from _labeled(child, seen)


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules directly in one: of a graph in the order of its steps."""
    if isinstance(module, GraphBase):
        for node in module.flodl_plan.nodes:
            yield from module.flodl_modules_of(node).values()
    else:
        yield from module.children()


def check_labels(
    nodes: Iterable[Node], tags: Iterable[Tag], modules: Mapping[str, Mapping[str, nn.Module]]
) -> None:
    """Refuse labels of nested graphs that mean two things.

    Raises:
        FlowError: Two graphs share a label, or a label is the tag of another step.
    """
    steps = {node.id: node for node in nodes}
    tag_steps = {tag.name: tag.port.node for tag in tags}
    known: dict[str, tuple[GraphBase, str]] = {}
    for node in steps.values():
        for graph in _labeled_in(modules.get(node.id, {})):
            label = graph.label or ""
            other, place = known.setdefault(label, (graph, node.id))
            if other is not graph:
                raise FlowError(
                    f"build: two graphs are labeled {label!r}, at {place} and {node.id}",
                    hint="give one of them another label",
                )
            tagged = tag_steps.get(label)
            if tagged is not None and node.id not in (tagged, *steps[tagged].owners):
                raise FlowError(
                    f"build: {label!r} is the label of the graph at {node.id} and a tag of "
                    f"{tagged}",
                    hint="rename one of them: paths could not tell them apart",
                )


def _labeled_in(modules: Mapping[str, nn.Module]) -> Iterator[GraphBase]:
    for module in modules.values():
        if isinstance(module, GraphBase) and module.label:
            yield module
        else:
            yield from _labeled(module, set())


def find(graph: GraphBase, path: str) -> Place:
    """Return where a path leads, from a graph on.

    Raises:
        GraphPathError: Names the segment that is not there, and what is.
    """
    *boundaries, last = path.split(".")
    current = graph
    for depth, segment in enumerate(boundaries):
        children = children_of(current)
        if segment not in children:
            raise _missing(path, segment, depth, children, "subgraph")
        current = children[segment]
    return _find_last(current, path, last, crosses=bool(boundaries), depth=len(boundaries))


def _find_last(graph: GraphBase, path: str, name: str, *, crosses: bool, depth: int) -> Place:
    children = children_of(graph)
    if name in children:
        return Place(PathKind.SUBGRAPH, children[name])
    tags = {tag.name: tag for tag in graph.flodl_plan.tags}
    if name in tags:
        if crosses and tags[name].internal:
            raise GraphPathError(
                f"path {path!r}: {name!r} is an internal tag, visible only in its own graph",
                hint=f"show it with .internal({name!r}, False) in that graph",
            )
        return Place(PathKind.TAG, graph, name)
    indexed = _INDEXED.fullmatch(name)
    plain = indexed["name"] if indexed else name
    traces = trace_names(graph)
    if plain in traces:
        return Place(PathKind.TRACE, graph, plain, int(indexed["index"]) if indexed else None)
    visible = [tag for tag in tags if not (crosses and tags[tag].internal)]
    raise _missing(path, name, depth, [*children, *visible, *traces], "subgraph, tag or trace")


def trace_names(graph: GraphBase) -> list[str]:
    """Return the names of the traces a graph keeps: of traced loops, declared, or seen so far."""
    names: dict[str, None] = {}
    for node in graph.flodl_plan.nodes:
        if node.op != "loop":
            continue
        if node.attr("trace"):
            tags = [tag.name for tag in graph.flodl_plan.tags if tag.port.node == node.id]
            names.update(dict.fromkeys(tags))
        body = graph.get_submodule(node.path("body"))
        if isinstance(body, LoopBody):
            names.update(dict.fromkeys(body.emits))
        if node.attr("mode") == "act":
            names.update(dict.fromkeys(["halt_prob", "ponder_cost"]))
    names.update(dict.fromkeys(graph.flodl_memory.trace_owners))
    return list(names)


def _missing(
    path: str, segment: str, depth: int, known: Mapping[str, object] | list[str], kind: str
) -> GraphPathError:
    where = f" below {'.'.join(path.split('.')[:depth])!r}" if depth else ""
    return GraphPathError(
        f"path {path!r}: no {kind} {segment!r}{where}", hint=suggestion(segment, known)
    )
