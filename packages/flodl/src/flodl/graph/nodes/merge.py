"""Joining parallel streams."""

from __future__ import annotations

from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import torch

from flodl.graph.nodes.base import Construct, Writer, joined, literal
from flodl.graph.nodes.schema import Schema, among, optional, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from flodl.graph.ir import Attr, Node


class MergeOp(StrEnum):
    """How ``merge`` makes one stream of several."""

    ADD = "add"
    MEAN = "mean"
    MUL = "mul"
    MAX = "max"
    CAT = "cat"
    STACK = "stack"

    @property
    def needs_dim(self) -> bool:
        """Whether the operation works along a dimension."""
        return self in {MergeOp.CAT, MergeOp.STACK}


class Merge(Construct):
    """One of ``MergeOp``, or a module on the list of streams."""

    op = "merge"
    schema: ClassVar[Schema] = {"kind": among("module", *MergeOp), "dim": optional(whole)}

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:
        """Return the slot of the module on the list, if there is one."""
        return [""] if attrs["kind"] == "module" else []

    def emit(self, node: Node, out: Writer) -> None:
        """Write one expression."""
        values = [out.value(port) for port in node.inputs]
        out.line(f"{out.result(node)} = {self._expression(node, values, out)}")

    def _expression(self, node: Node, values: list[str], out: Writer) -> str:
        listed = f"[{', '.join(values)}]"
        kind = str(node.attr("kind"))
        along = f", dim={literal(node.attr('dim'))}"
        match kind:
            case "module":
                text = f"{out.module(node)}({listed})"
            case MergeOp.ADD:
                text = joined(values, "+")
            case MergeOp.MEAN:
                text = f"({joined(values, '+')}) / {len(values)}"
            case MergeOp.MUL:
                text = joined(values, "*")
            case MergeOp.MAX:
                text = f"{out.bind('maximum', maximum)}({listed})"
            case MergeOp.CAT:
                text = f"{out.bind('cat', torch.cat)}({listed}{along})"
            case _:
                text = f"{out.bind('stack', torch.stack)}({listed}{along})"
        return text


def maximum(values: list[Tensor]) -> Tensor:
    """Return the element-wise maximum of all values."""
    return reduce(torch.maximum, values)
