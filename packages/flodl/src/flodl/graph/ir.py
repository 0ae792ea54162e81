"""What a flow describes, as plain data: no tensors, no modules, no code.

A plan is what the builder makes and the emitter, the hash, the pictures and the topology file
read. Everything in it can be pickled, compared and written as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

Attr: TypeAlias = "bool | int | float | str | tuple[Attr, ...] | None"


class CallStyle(StrEnum):
    """How a module takes the references bound with ``using``."""

    REFS = "refs"  # module(x, refs={name: value})
    KEYWORDS = "keywords"  # module(x, name=value)
    NAMED = "named"  # module.forward_named(x, {name: value})


@dataclass(frozen=True, slots=True)
class Port:
    """One output of a node; nearly all nodes have one."""

    node: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference into a node: the tag it names, the keyword it arrives as, where it comes from."""

    name: str
    keyword: str
    port: Port


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of a node that holds a module, and the module's path in the graph.

    The only slot of a plain module node has the empty name; constructs have named ones, such as
    ``body`` or ``experts.0``. One module used twice has one path.
    """

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One step of a flow.

    Attributes:
        id: Unique name in the graph.
        op: Construct it is an instance of, a key of ``nodes.CONSTRUCTS``.
        type: Class name of its module, or ``op`` for a node without one.
        key: Namespace of its modules in the graph; empty without modules.
        inputs: What flows in, in order.
        refs: References into the node.
        style: How the module that takes the references is called.
        slots: Its modules.
        owners: For a node that closes a step (the sum of a residual): the nodes whose modules
            belong to that step, main module first.
        attrs: Sorted pairs of everything else that changes the computation.
    """

    id: str
    op: str
    type: str
    key: str = ""
    inputs: tuple[Port, ...] = ()
    refs: tuple[Ref, ...] = ()
    style: CallStyle = CallStyle.REFS
    slots: tuple[Slot, ...] = ()
    owners: tuple[str, ...] = ()
    attrs: tuple[tuple[str, Attr], ...] = ()

    def attr(self, name: str) -> Attr:
        """Return one attribute; it must be there."""
        return dict(self.attrs)[name]

    def path(self, slot: str = "") -> str:
        """Return the path of the module in a slot."""
        return next(item.path for item in self.slots if item.name == slot)

    def sources(self) -> tuple[Port, ...]:
        """Return every port that must be computed before this node."""
        return (*self.inputs, *(ref.port for ref in self.refs))


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a port; an internal one is hidden from parent graphs."""

    name: str
    port: Port
    internal: bool = False


class CellStart(StrEnum):
    """What a reader of a state cell gets before anything was stored."""

    STREAM = "stream"  # zeros shaped like its stream input
    SHAPE = "shape"  # zeros of a declared shape; -1 is the stream's batch size
    VALUE = "value"  # a tensor
    CALL = "call"  # what a callable returns for the stream


@dataclass(frozen=True, slots=True)
class Cell:
    """State carried from the end of one call to the next: the value of the tag of this name."""

    name: str
    writer: Port
    start: CellStart = CellStart.STREAM
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """A connection for reading and drawing; ``kind`` is stream, reference or state."""

    source: Port
    target: str
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole flow.

    Attributes:
        inputs: Argument names, entry first.
        nodes: Every node, in the order in which they are computed.
        outputs: The stream's end under the empty name, or the named outputs.
        tags: In the order of declaration.
        groups: Names that stand for several tags.
        cells: State carried across calls.
        label: Name in a parent graph.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, Port], ...]
    tags: tuple[Tag, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cells: tuple[Cell, ...] = ()
    label: str | None = None

    @property
    def has_named_outputs(self) -> bool:
        """Whether a call returns a dictionary."""
        return self.outputs[0][0] != ""

    def edges(self) -> tuple[Edge, ...]:
        """Return all connections, in node order; state goes from writer to reader."""
        result = []
        writers = {cell.name: cell.writer for cell in self.cells}
        for node in self.nodes:
            result += [Edge(port, node.id, "stream") for port in node.inputs]
            result += [Edge(ref.port, node.id, "reference", ref.keyword) for ref in node.refs]
            if node.op == "state_read":
                name = str(node.attr("cell"))
                result.append(Edge(writers[name], node.id, "state", name))
        return tuple(result)
