"""What keeps a graph from being compiled or captured whole."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flodl.graph.base import GraphBase
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.nodes.base import Blocker

if TYPE_CHECKING:
    from collections.abc import Iterator


def blockers(root: GraphBase) -> Iterator[Blocker]:
    """Yield what stands in the way in a graph and in everything in it."""
    for path, module in root.named_modules():
        reason = getattr(module, "flodl_dynamic", None)
        if isinstance(reason, str):
            kind = type(module).__name__
            yield Blocker(kind, reason, "leave it out, or run without capture", "", path)
        if isinstance(module, GraphBase):
            yield from _blockers_of(module, path)


def _blockers_of(graph: GraphBase, path: str) -> Iterator[Blocker]:
    tags = {tag.port.node: tag.name for tag in reversed(graph.flodl_plan.tags)}
    for node in graph.flodl_plan.nodes:
        found = CONSTRUCTS[node.op].blocker(node, graph.flodl_modules_of(node))
        if found is not None:
            name = f"{node.id} (#{tags[node.id]})" if node.id in tags else node.id
            yield dataclasses.replace(found, node=name, path=path)
    if graph.flodl_is_profiling:
        yield Blocker("profiling", "each node is timed", "call disable_profiling()", "", path)
