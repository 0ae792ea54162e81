"""Soft routing: all experts run, the router weighs their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from flodl.core.errors import NodeError
from flodl.graph.nodes.base import Construct, Writer, call, described, numbered
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

    The list is emptied, so that without gradients the outputs are freed before the product.

    Raises:
        NodeError: The shapes do not fit; the message lists all of them.
    """
    try:
        axis = weights.dim() - 1
        stacked = torch.stack(outputs, axis)
    except (RuntimeError, IndexError, TypeError, AttributeError) as error:
        # torch compares the shapes, and faster; it takes nothing but tensors either
        raise _misfit(weights, outputs) from error
    shape, lead = stacked.shape, weights.shape
    if axis < 0 or shape[: axis + 1] != lead:
        raise _misfit(weights, outputs)
    outputs.clear()
    if len(shape) == axis + 2:  # the common case, and each step here costs a call of every gate
        return (weights.unsqueeze(-1) * stacked).sum(axis)
    return (weights.reshape(*lead, *([1] * (len(shape) - axis - 1))) * stacked).sum(axis)


def _misfit(weights: Any, outputs: list[Any]) -> NodeError:
    for name, value in (("a router", weights), *(("an expert", output) for output in outputs)):
        if not isinstance(value, torch.Tensor):
            return NodeError(
                f"gate: {name} returned {described(value)}; one tensor is needed",
                hint="wrap it in a function that picks one value",
            )
    return NodeError(
        f"gate: weights of shape {list(weights.shape)} for {len(outputs)} experts with outputs "
        f"of shapes {', '.join(str(list(output.shape)) for output in outputs)}",
        hint="the router returns [..., number of experts], where ... begins the shape that all "
        "experts share",
    )
