"""A module on the stream, and the sum that closes a residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.graph.nodes.base import Construct, Writer, call, joined, literal

if TYPE_CHECKING:
    from flodl.graph.ir import Node


class ModuleCall(Construct):
    """``module(stream)``, with references; ``out`` picks from a tuple or dictionary."""

    op = "module"

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
