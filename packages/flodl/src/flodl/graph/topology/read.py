"""From JSON values to a graph. The values may come from anywhere: everything is checked.

Names and attributes enter generated code, so nothing passes that the builder could not have
made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from flodl.core.errors import FlodlError, TopologyError
from flodl.graph.base import GraphBase
from flodl.graph.check import check_nodes, check_traces
from flodl.graph.ir import CallStyle, Cell, CellStart, Node, Plan, Port, Ref, Slot, Tag
from flodl.graph.keys import is_legal
from flodl.graph.naming import check_argument, check_key, check_name
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.paths import check_labels
from flodl.graph.topology.modules import Registry, build_module
from flodl.graph.topology.write import TOPOLOGY_VERSION

if TYPE_CHECKING:
    from torch import nn

G = TypeVar("G", bound=GraphBase)
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*_[0-9]+")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)
}


def graph_from(topology: Any, kind: type[G], registry: Registry | None = None) -> G:
    """Return a new graph of a topology, with freshly initialized modules.

    Raises:
        TopologyError: It describes no graph, or a class that is not known.
    """
    try:
        return _Reading(topology, registry or {}).graph(kind)
    except TopologyError:
        raise
    except (
        FlodlError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise TopologyError(f"the topology describes no graph: {error!r}") from error


class _Reading:
    """One graph on its way from JSON values."""

    def __init__(self, topology: Any, registry: Registry) -> None:
        if not isinstance(topology, dict):
            raise TopologyError(f"a topology is a JSON object, not {type(topology).__name__}")
        version = topology.get("version")
        if version != TOPOLOGY_VERSION:
            raise TopologyError(
                f"topology version {version!r}; this flodl reads {TOPOLOGY_VERSION}",
                hint="use the flodl that wrote it, or a newer one",
            )
        self._topology = topology
        self._registry = registry
        self._modules: dict[str, nn.Module] = {}
        self._known: dict[str, Node] = {}

    def graph(self, kind: type[G]) -> G:
        topology = self._topology
        by_node: dict[str, dict[str, nn.Module]] = {}
        for item in topology["nodes"]:
            node = self._node(item, kind)
            self._known[node.id] = node
            by_node[node.id] = {slot.name: self._modules[slot.path] for slot in node.slots}
        plan = self._plan()
        check_labels(plan.nodes, plan.tags, by_node)
        check_nodes(plan, by_node)
        check_traces(plan, by_node)
        graph = kind(plan, self._modules, self._starts(plan.cells))
        for module in graph.modules():
            if isinstance(module, GraphBase) and module is not graph:
                module.flodl_is_composed = True
        return graph

    def _node(self, item: dict[str, Any], kind: type[GraphBase]) -> Node:
        node_id = item["id"]
        if not isinstance(node_id, str) or not _ID.fullmatch(node_id) or node_id in self._known:
            raise TopologyError(f"{node_id!r} is no id of a node, or given twice")
        construct = CONSTRUCTS.get(item["op"])
        if construct is None:
            raise TopologyError(f"{node_id}: no construct {item['op']!r}")
        attrs = {name: _attr(value) for name, value in item["attrs"].items()}
        bad = [
            name
            for name in attrs.keys() | construct.schema.keys()
            if name not in attrs
            or name not in construct.schema
            or not construct.schema[name](attrs[name])
        ]
        if bad:
            raise TopologyError(f"{node_id}: attributes {', '.join(sorted(bad))} do not fit")
        modules = item["module"]
        if sorted(modules) != sorted(construct.slots(attrs)):
            raise TopologyError(f"{node_id}: modules {', '.join(modules) or 'none'} do not fit")
        if item["owners"] and any(owner not in self._known for owner in item["owners"]):
            raise TopologyError(f"{node_id}: unknown owners")
        return Node(
            id=node_id,
            op=construct.op,
            type=check_name(item["type"], node_id),
            key=check_key(item["key"], node_id) if modules else "",
            inputs=tuple(self._port(place) for place in item["inputs"]),
            refs=tuple(self._ref(values) for values in item["refs"]),
            style=CallStyle(item["style"]),
            slots=tuple(Slot(name, self._placed(modules[name], kind)) for name in modules),
            owners=tuple(item["owners"]),
            attrs=tuple(sorted(attrs.items())),
        )

    def _placed(self, item: dict[str, Any], kind: type[GraphBase]) -> str:
        path = check_key(item["path"], "path")
        description = {name: value for name, value in item.items() if name != "path"}
        if path in self._modules and not description:
            return path
        if path in self._modules or not is_legal(path, kind):
            raise TopologyError(f"{path!r} is no path of a module, or given twice")
        if "graph" in description:
            self._modules[path] = _Reading(description["graph"], self._registry).graph(kind)
        else:
            self._modules[path] = build_module(description, self._registry)
        return path

    def _port(self, place: list[Any]) -> Port:
        node, index = place
        if node not in self._known or index != 0:
            # Nodes stand in the order of computation, so a cycle ends up here, too.
            raise TopologyError(f"port {place!r} is not computed before it is used")
        return Port(node, 0)

    def _ref(self, values: list[Any]) -> Ref:
        name, keyword, *place = values
        return Ref(check_name(name, "ref"), check_argument(keyword, "ref"), self._port(place))

    def _plan(self) -> Plan:
        topology = self._topology
        inputs = tuple(check_argument(name, "inputs") for name in topology["inputs"])
        named = sorted(
            str(node.attr("name")) for node in self._known.values() if node.op == "input"
        )
        if sorted(inputs) != named:
            raise TopologyError(f"inputs {', '.join(inputs)}, but input nodes {', '.join(named)}")
        internal = set(topology["internal"])
        tags = tuple(
            Tag(check_name(name, "tag"), self._port(place), name in internal)
            for name, place in topology["tags"].items()
        )
        names = {tag.name for tag in tags}
        groups = tuple(
            (check_name(name, "group"), tuple(members))
            for name, members in topology["groups"].items()
        )
        if any(member not in names for _, members in groups for member in members):
            raise TopologyError("a group has a member that is no tag")
        outputs = tuple((name, self._port(place)) for name, *place in topology["outputs"])
        if not outputs or (
            [name for name, _ in outputs] != [""] and not all(name in names for name, _ in outputs)
        ):
            raise TopologyError("outputs are the stream's end, or tags")
        label = topology["label"]
        return Plan(
            inputs=inputs,
            nodes=tuple(self._known.values()),
            outputs=outputs,
            tags=tags,
            groups=groups,
            cells=self._cells(),
            label=None if label is None else check_name(label, "label"),
        )

    def _cells(self) -> tuple[Cell, ...]:
        cells = tuple(
            Cell(
                check_name(item["name"], "state"),
                self._port(item["writer"]),
                CellStart(item["start"]),
                tuple(int(size) for size in item["shape"]),
            )
            for item in self._topology["states"]
        )
        read = {str(node.attr("cell")) for node in self._known.values() if node.op == "state_read"}
        if read != {cell.name for cell in cells} or len(read) != len(cells):
            raise TopologyError("states and what reads them differ")
        return cells

    def _starts(self, cells: tuple[Cell, ...]) -> dict[str, torch.Tensor]:
        values = {item["name"]: item["value"] for item in self._topology["states"]}
        starts = {}
        for cell in cells:
            if cell.start is CellStart.CALL:
                raise TopologyError(f"state {cell.name!r} begins with a function")
            if cell.start is CellStart.VALUE:
                value = values[cell.name]
                tensor = torch.tensor(value["values"], dtype=_DTYPES[value["dtype"]])
                starts[cell.name] = tensor.reshape(cell.shape)
        return starts


def _attr(value: Any) -> Any:
    return tuple(map(_attr, value)) if isinstance(value, list) else value
