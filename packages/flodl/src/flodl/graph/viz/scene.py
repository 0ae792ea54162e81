"""What a picture of a graph shows, before any format: items, groups and links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from flodl.graph.base import GraphBase
from flodl.graph.introspection import count_parameters
from flodl.graph.schedule import levels
from flodl.graph.viz.text import count_text, describe_node, port_lines

if TYPE_CHECKING:
    from flodl.graph.ir import Node

INPUT, OUTPUT, BOTH = "#aed6f1", "#a9dfbf", "#aed6f1"
MODULE, ACTIVATION, NORM, DROPOUT, GRAPH = "#eaecee", "#fdebd0", "#d5f5e3", "#fadbd8", "#d6eaf8"
LOOP, MAP, ROUTER, STATE, SUM = "#d7bde2", "#a9cce3", "#f5cba7", "#f9e79f", "#d5dbdb"

Look = tuple[str, list[str], str, str]
"""Title, further lines, shape and fill of an item."""

_SIGNS = {"add": "+", "mul": "\u00d7", "mean": "mean", "max": "max", "cat": "cat", "stack": "stack"}


@dataclass(frozen=True, slots=True)
class Item:
    """One shape: a node, or a module of a construct."""

    id: str
    title: str
    lines: tuple[str, ...]
    shape: str
    fill: str
    group: str = ""
    level: int = 0
    frozen: bool = False
    node: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A frame around items: a construct with several modules, or an opened graph."""

    id: str
    title: str
    group: str = ""
    level: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """An arrow; ``kind`` is stream, reference or state."""

    source: str
    target: str
    kind: str = "stream"
    label: str = ""


@dataclass(slots=True)
class Scene:
    """Everything in a picture."""

    items: list[Item] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


def scene_of(graph: GraphBase, expand: int = 0) -> Scene:
    """Return the scene of a graph; ``expand`` says how many levels of nested graphs to open."""
    scene = Scene()
    _Drawing(graph, scene, "", "", expand).draw(with_outputs=True)
    return scene


class _Drawing:
    """One graph on its way into a scene; opened graphs have drawings of their own."""

    def __init__(
        self, graph: GraphBase, scene: Scene, prefix: str, group: str, expand: int
    ) -> None:
        self._graph = graph
        self._plan = graph.flodl_plan
        self._scene = scene
        self._prefix = prefix
        self._group = group
        self._expand = expand
        self._levels = levels(self._plan)
        self._leaves: dict[str, str] = {}
        self._entries: dict[str, list[str]] = {}
        self._readers: dict[tuple[str, str], str] = {}

    def draw(self, *, with_outputs: bool) -> None:
        outputs = {port.node for _, port in self._plan.outputs}
        for node in self._plan.nodes:
            self._node(node, is_output=with_outputs and node.id in outputs)
        for edge in self._plan.edges():
            node = next(item for item in self._plan.nodes if item.id == edge.target)
            if node.op == "state_read" and edge.kind == "stream":
                continue  # only the shape of the stream is read
            source = self._leaves[edge.source.node]
            if edge.kind == "reference":
                targets = [self._readers.get((node.id, edge.name), self._entries[node.id][0])]
            elif edge.kind == "state":
                targets = [self._leaves[node.id]]
            else:
                targets = self._entries[node.id]
            for target in targets:
                self._scene.links.append(Link(source, target, edge.kind, edge.name))
        if with_outputs:
            self._outputs()

    @property
    def exit(self) -> str:
        """The item that holds the end of the stream."""
        return self._leaves[self._plan.outputs[0][1].node]

    def entry(self, name: str) -> str:
        """Return the item of an input."""
        found = next(
            node for node in self._plan.nodes if node.op == "input" and node.attr("name") == name
        )
        return self._leaves[found.id]

    def _outputs(self) -> None:
        for name, port in self._plan.outputs:
            source = next(node for node in self._plan.nodes if node.id == port.node)
            if source.op == "input":
                continue
            place = f"{self._prefix}output.{name or 'stream'}"
            level = self._levels[port.node] + 1
            title = name or "output"
            self._scene.items.append(
                Item(place, title, (), "house", OUTPUT, self._group, level, node="")
            )
            self._scene.links.append(Link(self._leaves[port.node], place))

    def _node(self, node: Node, *, is_output: bool) -> None:
        modules = self._graph.flodl_modules_of(node)
        opened = modules.get("")
        if isinstance(opened, GraphBase) and self._expand > 0 and not opened.output_names:
            self._open(node, opened)
        elif node.op in {"gate", "switch"}:
            self._framed(node, modules)
        else:
            look = _look(node, modules, is_output=is_output)
            self._add(node, node.id, look, self._group, modules)
            self._leaves[node.id] = self._prefix + node.id
            self._entries[node.id] = [self._prefix + node.id]

    def _open(self, node: Node, graph: GraphBase) -> None:
        place = self._prefix + node.id
        title = " ".join([graph.label or node.type, *self._tags(node)])
        self._scene.groups.append(Group(place, title, self._group, self._levels[node.id]))
        inner = _Drawing(graph, self._scene, f"{place}.", place, self._expand - 1)
        inner.draw(with_outputs=False)
        entry, *others = graph.input_names
        self._leaves[node.id] = inner.exit
        self._entries[node.id] = [inner.entry(entry)]
        for name in others:
            self._readers[node.id, name] = inner.entry(name)

    def _framed(self, node: Node, modules: dict[str, nn.Module]) -> None:
        place = self._prefix + node.id
        title = " ".join([describe_node(node), *self._tags(node)])
        self._scene.groups.append(Group(place, title, self._group, self._levels[node.id]))
        exit_sign = "Σ" if node.op == "gate" else "?"
        inside: list[str] = []
        for slot, module in modules.items():
            is_router = slot == "router"
            name = f"{node.id}.{slot}"
            lines = [] if is_router else [slot.replace(".", " ")]
            shape, fill = ("diamond", ROUTER) if is_router else _module_look(module)
            one = {slot: module}
            look = (_title(module), lines, shape, fill)
            self._add(node, name, look, place, one, is_whole=False)
            inside.append(self._prefix + name)
        exit_name = f"{node.id}.exit"
        self._add(node, exit_name, (exit_sign, [], "circle", SUM), place, {})
        out = self._prefix + exit_name
        self._leaves[node.id] = out
        self._entries[node.id] = inside
        label = "weights" if node.op == "gate" else "index"
        self._scene.links.append(Link(inside[0], out, "reference", label))
        self._scene.links += [Link(branch, out) for branch in inside[1:]]

    def _add(
        self,
        node: Node,
        name: str,
        look: Look,
        group: str,
        modules: dict[str, nn.Module],
        is_whole: bool = True,
    ) -> None:
        title, lines, shape, fill = look
        tags = self._tags(node) if group == self._group else []
        found = [item for module in modules.values() for item in module.parameters()]
        count = count_parameters(modules.values())
        takes_refs = name in {node.id, f"{node.id}.router"}
        ports = port_lines(node, modules.get("")) if takes_refs else []
        parts = [*lines, *([" ".join(tags)] if tags else []), *ports]
        if count:
            parts.append(f"[{count_text(count)} params]")
        frozen = bool(found) and not any(item.requires_grad for item in found)
        self._scene.items.append(
            Item(
                self._prefix + name,
                title,
                tuple(parts),
                shape,
                fill,
                group,
                self._levels[node.id],
                frozen,
                node.id if is_whole and not self._prefix else "",
            )
        )

    def _tags(self, node: Node) -> list[str]:
        return [f"#{tag.name}" for tag in self._plan.tags if tag.port.node == node.id]


def _look(  # noqa: PLR0911 - one return a kind of node
    node: Node, modules: dict[str, nn.Module], *, is_output: bool
) -> Look:
    """Return title, further lines, shape and fill of a node."""
    match node.op:
        case "input":
            shape = "doubleoctagon" if is_output else "invhouse"
            return str(node.attr("name")), [], shape, BOTH if is_output else INPUT
        case "add":
            return "+", [], "circle", SUM
        case "merge":
            kind = str(node.attr("kind"))
            sign = _title(modules[""]) if kind == "module" else _SIGNS[kind]
            return sign, [], "circle", SUM
        case "state_read":
            return str(node.attr("cell")), [], "diamond", STATE
        case "loop":
            return describe_node(node), [_title(modules["body"])], "box3d", LOOP
        case "map":
            return describe_node(node), [_title(modules["body"])], "parallelogram", MAP
    module = modules[""]
    picked = node.attr("out")
    title = _title(module) if picked is None else f"{_title(module)}[{picked!r}]"
    return title, [], *_module_look(module)


def _module_look(module: nn.Module) -> tuple[str, str]:
    name = getattr(module, "flodl_name", type(module).__name__)
    if isinstance(module, GraphBase):
        return "box", GRAPH
    if "Norm" in name:
        return "box", NORM
    if "Dropout" in name:
        return "box", DROPOUT
    is_attention = isinstance(module, nn.MultiheadAttention)
    from_activations = type(module).__module__ == nn.ReLU.__module__ and not is_attention
    if from_activations or hasattr(nn.functional, str(name)):
        return "ellipse", ACTIVATION
    return "box", MODULE


def _title(module: nn.Module) -> str:
    if isinstance(module, GraphBase):
        return module.label or "Graph"
    return str(getattr(module, "flodl_name", None) or type(module).__name__)
