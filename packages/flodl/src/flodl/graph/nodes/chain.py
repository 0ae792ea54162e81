"""A module on the stream, and the sum that closes a residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from flodl.graph.nodes.base import Construct, Writer, call, joined, literal
from flodl.graph.nodes.schema import Schema, either, optional, text, whole

if TYPE_CHECKING:
    from flodl.graph.ir import Attr, Node


class ModuleCall(Construct):
    """``module(stream)``, with references; ``out`` picks from a tuple or dictionary."""

    op = "module"
    schema: ClassVar[Schema] = {"out": optional(either(whole, text))}

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:  # noqa: ARG002
        """Return the only slot, without a name."""
        return [""]

    def emit(self, node: Node, out: Writer) -> None:
        """Write one call."""
        picked = node.attr("out")
        pick = "" if picked is None else f"[{literal(picked)}]"
        expression = call(out, node, out.value(node.inputs[0])) + pick
        out.line(f"{out.result(node)} = {expression}")


class Add(Construct):
    """The sum of a residual, in the order written: stream or skip first, main last."""

    op = "add"

    def emit(self, node: Node, out: Writer) -> None:
        """Write one sum."""
        out.line(f"{out.result(node)} = {joined([out.value(port) for port in node.inputs], '+')}")
