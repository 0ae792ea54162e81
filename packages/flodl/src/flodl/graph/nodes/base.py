"""The contract every construct fulfills: check itself at build time, write its own code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from flodl.graph.ir import CallStyle

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


class Construct(ABC):
    """One kind of node; stateless, shared by all nodes of its kind."""

    op: ClassVar[str]

    def check(self, node: Node, modules: Mapping[str, nn.Module]) -> None:  # noqa: B027
        """Raise ``FlowError`` when a finished node cannot work with its modules, by slot name."""

    @abstractmethod
    def emit(self, node: Node, out: Writer) -> None:
        """Write the statements that compute the node's outputs."""


def call(out: Writer, node: Node, stream: str, *, slot: str = "") -> str:
    """Return the expression that calls a module on the stream, with the node's references."""
    module = out.module(node, slot)
    if not node.refs:
        return f"{module}({stream})"
    pairs = [(ref.keyword, out.value(ref.port)) for ref in node.refs]
    if node.style is CallStyle.KEYWORDS:
        return f"{module}({stream}, {', '.join(f'{key}={value}' for key, value in pairs)})"
    refs = "{" + ", ".join(f"{key!r}: {value}" for key, value in pairs) + "}"
    if node.style is CallStyle.NAMED:
        return f"{out.bind('named', named)}({module})({stream}, {refs})"
    return f"{module}({stream}, refs={refs})"


def named(module: nn.Module) -> Callable[..., object]:
    """Return the method of a ``NamedInputModule`` that takes stream and references."""
    chooser = getattr(module, "as_named_input", None)
    target: Any = module if chooser is None else chooser()
    method: Callable[..., object] = target.forward_named
    return method


def literal(value: Attr) -> str:
    """Return Python source for an attribute."""
    if isinstance(value, tuple):
        return "(" + "".join(f"{literal(item)}, " for item in value) + ")"
    return repr(value)


def joined(parts: Sequence[str], operator: str) -> str:
    """Return the parts with an operator between them."""
    return f" {operator} ".join(parts)
