"""The contract every construct fulfills: check itself at build time, write its own code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

from flodl.graph.ir import CallStyle
from flodl.graph.nodes.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

    from flodl.graph.ir import Attr, Node, Port


class Writer(Protocol):
    """Where a construct writes its statements: the face of the emitter that constructs see."""

    def line(self, text: str) -> None:
        """Write one statement at the current depth."""
        ...

    def block(self, head: str) -> AbstractContextManager[None]:
        """Write ``head`` and indent what follows in the ``with`` block."""
        ...

    def value(self, port: Port) -> str:
        """Return the variable that holds a port."""
        ...

    def result(self, node: Node, index: int = 0) -> str:
        """Return the variable to assign an output of the node to."""
        ...

    def module(self, node: Node, slot: str = "") -> str:
        """Return the expression for the module in a slot, looked up at call time."""
        ...

    def cell(self, name: str) -> str:
        """Return the variable that holds the stored value of a state cell."""
        ...

    def bind(self, name: str, value: Callable[..., object]) -> str:
        """Make a function known to the generated code and return its name there."""
        ...

    def facts(self, node: Node) -> Mapping[str, Attr]:
        """Return what the construct found out about the node's present modules."""
        ...

    @property
    def exporting(self) -> bool:
        """Whether the code is for an exporter, which follows no decision of the host."""
        ...

    @property
    def outlining(self) -> bool:
        """Whether values have shapes only, so that no decision can depend on them."""
        ...

    def report(self, node: Node, value: str) -> None:
        """Return a value to the graph after the call, besides the output: what a loop did."""
        ...


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a node cannot be compiled or captured whole, and what would change that.

    Attributes:
        kind: Construct it is an instance of.
        reason: What it does that cannot be captured.
        remedy: What to do about it.
        node: Id of the node, with its tag.
        path: Where its graph, or the module, lies; empty for the root.
    """

    kind: str
    reason: str
    remedy: str
    node: str = ""
    path: str = ""

    def __str__(self) -> str:
        where = ".".join(part for part in (self.path, self.node) if part) or "the graph"
        return f"{where}: {self.reason}; {self.remedy}"


class Construct(ABC):
    """One kind of node; stateless, shared by all nodes of its kind."""

    op: ClassVar[str]
    schema: ClassVar[Schema] = {}
    """Which attributes its nodes have, and what each may be."""

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:  # noqa: ARG002
        """Return the slots of a node with these attributes."""
        return []

    def check(self, node: Node, modules: Mapping[str, nn.Module]) -> None:  # noqa: B027
        """Raise ``FlowError`` when a finished node cannot work with its modules, by slot name."""

    def doubts(self, node: Node, modules: Mapping[str, nn.Module]) -> Sequence[str]:  # noqa: ARG002
        """Return warnings about a node that works, but maybe not as its author thinks."""
        return ()

    def facts(
        self,
        node: Node,  # noqa: ARG002
        modules: Mapping[str, nn.Module],  # noqa: ARG002
    ) -> dict[str, Attr]:
        """Return what the code depends on besides the node: properties of its modules now."""
        return {}

    def blocker(
        self,
        node: Node,  # noqa: ARG002
        modules: Mapping[str, nn.Module],  # noqa: ARG002
    ) -> Blocker | None:
        """Return why the node cannot be compiled or captured whole, if it cannot."""
        return None

    @abstractmethod
    def emit(self, node: Node, out: Writer) -> None:
        """Write the statements that compute the node's outputs."""


def call(out: Writer, node: Node, stream: str, *, slot: str = "", takes_refs: bool = True) -> str:
    """Return the expression that calls a module on the stream, with the node's references.

    Of a construct's modules only one takes the references; the others are called without.
    """
    if not takes_refs:
        return f"{out.module(node, slot)}({stream})"
    function, extra = callee(out, node, slot)
    return f"{function}({', '.join([stream, *extra])})"


def callee(out: Writer, node: Node, slot: str = "") -> tuple[str, list[str]]:
    """Return what to call for a module, and the arguments that pass the node's references."""
    module = out.module(node, slot)
    pairs = [(ref.keyword, out.value(ref.port)) for ref in node.refs]
    if not pairs:
        return module, []
    if node.style is CallStyle.KEYWORDS:
        return module, [f"{key}={value}" for key, value in pairs]
    refs = "{" + ", ".join(f"{key!r}: {value}" for key, value in pairs) + "}"
    if node.style is CallStyle.NAMED:
        return f"{out.bind('named', named)}({module})", [refs]
    return module, [f"refs={refs}"]


def named(module: nn.Module) -> Callable[..., object]:
    """Return the method of a ``NamedInputModule`` that takes stream and references."""
    chooser = getattr(module, "as_named_input", None)
    target: Any = module if chooser is None else chooser()
    method: Callable[..., object] = target.forward_named
    return method


def scratch(node: Node, name: str) -> str:
    """Return a variable for a construct's own use; no other node can have one of that name."""
    return f"{name}_{node.id}"


def numbered(name: str, attrs: Mapping[str, Attr]) -> list[str]:
    """Return the slots of a construct with ``n`` modules of a kind and a router."""
    total = attrs["n"]
    assert isinstance(total, int), "its schema says so"
    return ["router", *(f"{name}.{index}" for index in range(total))]


def literal(value: Attr) -> str:
    """Return Python source for an attribute."""
    if isinstance(value, tuple):
        return "(" + "".join(f"{literal(item)}, " for item in value) + ")"
    return repr(value)


def joined(parts: Sequence[str], operator: str) -> str:
    """Return the parts with an operator between them."""
    return f" {operator} ".join(parts)


def described(value: Any) -> str:
    """Return type, shape, dtype and device of a value in one line."""
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')} on {value.device}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}: {', '.join(map(described, value[:4]))}"
    if isinstance(value, dict):
        return f"dict with {', '.join(map(repr, list(value)[:8]))}"
    return "None" if value is None else type(value).__name__
