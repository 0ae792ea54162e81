"""Soft routing: all experts run, the router weighs their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from flodl.core.errors import NodeError
from flodl.graph.nodes.base import Construct, Writer, call, numbered
from flodl.graph.nodes.schema import Schema, count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from flodl.graph.ir import Attr, Node


class Gate(Construct):
    """``sum_k w[..., k] * expert_k(x)`` with ``w = router(x)``; the router owns normalization."""

    op = "gate"
    schema: ClassVar[Schema] = {"n": count}

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:
        """Return router and experts."""
        return numbered("experts", attrs)

    def emit(self, node: Node, out: Writer) -> None:
        """Write one statement."""
        stream = out.value(node.inputs[0])
        weights = call(out, node, stream, slot="router")
        experts = [
            call(out, node, stream, slot=slot.name, takes_refs=False)
            for slot in node.slots
            if slot.name.startswith("experts.")
        ]
        out.line(f"{out.result(node)} = {out.bind('mix', mix)}({weights}, [{', '.join(experts)}])")


def mix(weights: Tensor, outputs: list[Tensor]) -> Tensor:
    """Return the weighted sum of the outputs: stack, multiply, sum, whatever their number.

    Raises:
        NodeError: The shapes do not fit; the message lists all of them.
    """
    shape = outputs[0].shape
    leading = weights.dim() - 1
    fits = (
        all(output.shape == shape for output in outputs)
        and leading >= 0
        and weights.shape[-1] == len(outputs)
        and weights.shape[:-1] == shape[:leading]
    )
    if not fits:
        raise NodeError(
            f"gate: weights of shape {list(weights.shape)} for {len(outputs)} experts with outputs "
            f"of shapes {', '.join(str(list(output.shape)) for output in outputs)}",
            hint="the router returns [..., number of experts], where ... begins the shape that all "
            "experts share",
        )
    stacked = torch.stack(outputs, dim=leading)
    spread = weights.reshape(*weights.shape, *([1] * (len(shape) - leading)))
    return (spread * stacked).sum(dim=leading)
