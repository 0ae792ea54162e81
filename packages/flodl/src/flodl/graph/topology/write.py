"""From a graph to JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import TopologyError
from flodl.graph.base import GraphBase
from flodl.graph.ir import CellStart
from flodl.graph.keys import Namespace
from flodl.graph.paths import children_of
from flodl.graph.topology.modules import Registry, describe_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from flodl.graph.ir import Attr, Node, Port

TOPOLOGY_VERSION = 1
_MOST_ELEMENTS = 1 << 16


def topology_of(
    graph: GraphBase, registry: Registry | None = None, *, rebuildable: bool = False
) -> dict[str, Any]:
    """Return a graph as JSON values.

    Args:
        graph: The graph.
        registry: Further classes and functions by name.
        rebuildable: Demand that every module can be made again.

    Raises:
        TopologyError: With ``rebuildable``: lists all modules whose class is not registered.
    """
    problems: dict[str, None] = {}
    result = _Writing(graph, registry or {}, problems, rebuildable).topology()
    if problems:
        raise TopologyError(
            f"cannot be rebuilt from a file: {', '.join(problems)}",
            hint="decorate the class or function with @flodl.register_module('name')",
        )
    return result


class _Writing:
    """The description of one graph."""

    def __init__(
        self, graph: GraphBase, registry: Registry, problems: dict[str, None], rebuildable: bool
    ) -> None:
        self._graph = graph
        self._registry = registry
        self._problems = problems
        self._rebuildable = rebuildable
        plan = graph.flodl_plan
        paths = {slot.path for node in plan.nodes for slot in node.slots}
        self._placed = {graph.get_submodule(path) for path in paths}
        self._seen: set[str] = set()

    def topology(self) -> dict[str, Any]:
        plan = self._graph.flodl_plan
        return {
            "version": TOPOLOGY_VERSION,
            "label": plan.label,
            "inputs": list(plan.inputs),
            "outputs": [[name, *_place(port)] for name, port in plan.outputs],
            "nodes": [self._node(node) for node in plan.nodes],
            "tags": {tag.name: _place(tag.port) for tag in plan.tags},
            "internal": [tag.name for tag in plan.tags if tag.internal],
            "groups": {name: list(members) for name, members in plan.groups},
            "states": [
                {
                    "name": cell.name,
                    "writer": _place(cell.writer),
                    "start": str(cell.start),
                    "shape": list(cell.shape),
                    "value": self._start(cell.name, cell.start),
                }
                for cell in plan.cells
            ],
            "children": {
                label: child.structural_hash for label, child in children_of(self._graph).items()
            },
        }

    def _node(self, node: Node) -> dict[str, Any]:
        return {
            "id": node.id,
            "op": node.op,
            "type": node.type,
            "key": node.key,
            "inputs": [_place(port) for port in node.inputs],
            "refs": [[ref.name, ref.keyword, *_place(ref.port)] for ref in node.refs],
            "style": str(node.style),
            "owners": list(node.owners),
            "attrs": {name: _attr(value) for name, value in node.attrs},
            "module": {slot.name: self._module(slot.path) for slot in node.slots},
        }

    def _module(self, path: str) -> dict[str, Any]:
        module = self._graph.get_submodule(path)
        if path in self._seen:
            return {"path": path}
        self._seen.add(path)
        if isinstance(module, GraphBase):
            inner = _Writing(module, self._registry, self._problems, self._rebuildable)
            return {"path": path, "graph": inner.topology()}
        return {"path": path, **self._described(module, self._skip(module))}

    def _described(self, module: nn.Module, skip: Callable[[nn.Module], bool]) -> dict[str, Any]:
        try:
            return describe_module(module, self._registry, skip)
        except TopologyError as error:
            if self._rebuildable:
                self._problems[str(error)] = None
            return {"type": type(module).__name__}

    def _skip(self, module: nn.Module) -> Callable[[nn.Module], bool]:
        placed = self._placed

        def skip(child: nn.Module) -> bool:
            return isinstance(child, Namespace) or (child in placed and child is not module)

        return skip

    def _start(self, name: str, start: CellStart) -> Any:
        if start is CellStart.CALL and self._rebuildable:
            self._problems[f"the function that begins state {name!r}"] = None
        if start is not CellStart.VALUE:
            return None
        value: torch.Tensor = self._graph.flodl_starts[name]
        if value.numel() > _MOST_ELEMENTS and self._rebuildable:
            self._problems[f"state {name!r}, which begins with {value.numel()} elements"] = None
            return None
        return {"dtype": str(value.dtype).removeprefix("torch."), "values": value.tolist()}


def _place(port: Port) -> list[Any]:
    return [port.node, port.index]


def _attr(value: Attr) -> Any:
    return [_attr(item) for item in value] if isinstance(value, tuple) else value
