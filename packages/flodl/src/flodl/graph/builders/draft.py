"""A flow while it is being described: what every builder method reads and extends.

Each method works on a copy, so a call that raises leaves its builder as it was.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flodl.core.errors import FlowError
from flodl.graph.base import GraphBase
from flodl.graph.builders.modules import as_module, call_style, step_name
from flodl.graph.ir import Cell, CellStart, Node, Port, Ref, Tag
from flodl.graph.naming import check_key, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from flodl.graph.ir import Attr


@dataclass(frozen=True, slots=True)
class Target:
    """Where the next ``using`` binds: a node, and the slot of the module that takes references."""

    node: str
    slot: str = ""


@dataclass(slots=True)
class Draft:
    """The state of a builder.

    Attributes:
        nodes: By id, in the order of description; keys are given at build.
        modules: By node id and slot.
        keys: ``key=`` by node id.
        streams: Open positions; nearly always one.
        targets: What ``using`` binds to; several after ``split``.
        fork: Output of a ``fork`` that the next ``tag`` names.
        tags: In the order of declaration.
        readers: State reads that wait for a tag of that name, or have found it.
        starts: What begins a state cell, by name.
    """

    counter: int = 0
    inputs: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    modules: dict[str, dict[str, nn.Module]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    streams: list[Port] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    fork: Port | None = None
    tags: dict[str, Tag] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)
    starts: dict[str, Any] = field(default_factory=dict)
    internal: dict[str, bool] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    label: str | None = None
    verbose: bool = False

    def copy(self) -> Draft:
        """Return an independent draft over the same modules."""
        copied = dataclasses.replace(self)
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list | dict):
                setattr(copied, item.name, value.copy())
        copied.readers = {name: list(nodes) for name, nodes in self.readers.items()}
        return copied

    def stream(self, call: str) -> Port:
        """Return the only open stream.

        Raises:
            FlowError: There are several.
        """
        if len(self.streams) != 1:
            raise FlowError(
                f"{call} needs a single stream, {len(self.streams)} are open",
                hint="merge them first: .merge('add')",
            )
        return self.streams[0]

    def add_node(
        self,
        name: str,
        op: str,
        inputs: tuple[Port, ...],
        *,
        modules: dict[str, nn.Module] | None = None,
        type_name: str | None = None,
        owners: tuple[str, ...] = (),
        attrs: Mapping[str, Attr] | None = None,
    ) -> Port:
        """Add a node whose id is ``name`` and the next number; return its output."""
        self.counter += 1
        node_id = f"{name}_{self.counter}"
        self.nodes[node_id] = Node(
            id=node_id,
            op=op,
            type=type_name or op,
            inputs=inputs,
            owners=owners,
            attrs=tuple(sorted((attrs or {}).items())),
        )
        if modules:
            self.modules[node_id] = modules
        return Port(node_id)

    def add_module(
        self, value: object, source: Port, call: str, *, key: str | None = None, out: Attr = None
    ) -> Port:
        """Add the call of one module on one position."""
        module = as_module(value, call)
        if isinstance(module, GraphBase) and module.output_names and out is None:
            names = ", ".join(module.output_names)
            raise FlowError(
                f"{call}: the graph returns a dictionary of {names}; a stream is one value",
                hint=f"pick one: out={module.output_names[0]!r}",
            )
        port = self.add_node(
            step_name(module),
            "module",
            (source,),
            modules={"": module},
            type_name=type(module).__name__,
            attrs={"out": out},
        )
        self.give_key(port.node, key, call)
        return port

    def give_key(self, node: str, key: str | None, call: str) -> None:
        """Note the namespace that was asked for, if one was."""
        if key is not None:
            self.keys[node] = check_key(key, call)

    def add_input(self, name: str, number: int) -> Port:
        """Add an argument of the graph."""
        node_id = f"input_{name}_{number}"
        self.nodes[node_id] = Node(id=node_id, op="input", type="input", attrs=(("name", name),))
        self.inputs.append(name)
        return Port(node_id)

    def move_to(self, streams: list[Port], targets: list[Target]) -> None:
        """Continue the stream elsewhere; a fork that was not tagged can no longer be."""
        self.streams = streams
        self.targets = targets
        self.fork = None

    def add_tag(self, name: str, port: Port, call: str) -> None:
        """Name a position.

        Raises:
            FlowError: The name is illegal or taken.
        """
        check_name(name, call)
        if name in self.tags or name in self.groups:
            kind = "tag" if name in self.tags else "group"
            raise FlowError(f"{call}: there is already a {kind} {name!r}", hint="choose another")
        self.tags[name] = Tag(name, port)

    def bind(self, target: Target, keyword: str, name: str, call: str) -> None:
        """Bind a reference: a wire to an earlier tag, a state read of a later one.

        Raises:
            FlowError: The target cannot take it, or already takes one under this keyword.
        """
        node = self.nodes[target.node]
        if any(ref.keyword == keyword for ref in node.refs):
            raise FlowError(
                f"{call}: {node.id} already has a reference {keyword!r}",
                hint="bind it under another keyword: using(other='tag')",
            )
        keywords = [*(ref.keyword for ref in node.refs), keyword]
        style = call_style(self.modules[node.id][target.slot], keywords, call, node.id)
        tag = self.tags.get(name)
        if tag is not None and not self._depends(tag.port.node, node.id):
            port = tag.port
        else:
            port = self._add_state_read(name, node)
        node = dataclasses.replace(node, refs=(*node.refs, Ref(name, keyword, port)), style=style)
        self.nodes[node.id] = node

    def _add_state_read(self, name: str, reader: Node) -> Port:
        port = self.add_node(
            f"state_read_{name}",
            "state_read",
            reader.inputs[:1],
            attrs={"cell": name, "start": "stream"},
        )
        self.readers.setdefault(name, []).append(port.node)
        return port

    def _depends(self, node_id: str, on: str) -> bool:
        """Return whether a node is, or is computed from, another one in the same call."""
        seen: set[str] = set()
        waiting = [node_id]
        while waiting:
            current = waiting.pop()
            if current == on:
                return True
            if current not in seen:
                seen.add(current)
                waiting += [port.node for port in self.nodes[current].sources()]
        return False

    def finished_nodes(self, cells: tuple[Cell, ...]) -> list[Node]:
        """Return the nodes with what is known only at build: how the state they read begins."""
        nodes = dict(self.nodes)
        for cell in cells:
            for node_id in self.readers[cell.name]:
                attrs: dict[str, Attr] = {
                    "cell": cell.name,
                    "start": str(cell.start),
                    "shape": cell.shape,
                }
                nodes[node_id] = dataclasses.replace(
                    nodes[node_id], attrs=tuple(sorted(attrs.items()))
                )
        return list(nodes.values())

    def cells(self) -> tuple[Cell, ...]:
        """Return the state cells of a draft whose references are all resolved."""
        return tuple(
            Cell(name, self.tags[name].port, *_start_of(self.starts.get(name)))
            for name in self.readers
        )


def _start_of(start: torch.Tensor | tuple[int, ...] | object) -> tuple[CellStart, tuple[int, ...]]:
    import torch

    if start is None:
        return CellStart.STREAM, ()
    if isinstance(start, tuple):
        return CellStart.SHAPE, start
    if isinstance(start, torch.Tensor):
        return CellStart.VALUE, tuple(start.shape)
    return CellStart.CALL, ()
