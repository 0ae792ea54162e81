"""The arguments of a graph as nodes, so that tags and references treat them like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flodl.graph.nodes.base import Construct, Writer
from flodl.graph.nodes.schema import Schema, text

if TYPE_CHECKING:
    from flodl.graph.ir import Node


class Input(Construct):
    """An argument; its value already stands in a variable."""

    op = "input"
    schema: ClassVar[Schema] = {"name": text}

    def emit(self, node: Node, out: Writer) -> None:
        """Write nothing."""
