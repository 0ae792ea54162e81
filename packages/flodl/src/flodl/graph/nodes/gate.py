"""Soft routing: all experts run, the router weighs their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from flodl.core.errors import NodeError
from flodl.graph.nodes.base import Construct, Writer, call, described, numbered
from flodl.graph.nodes.schema import Schema, count, flag
from flodl.graph.nodes.together import check_alike, together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from flodl.graph.ir import Attr, Node


class Gate(Construct):
    """``sum_k w[..., k] * expert_k(x)`` with ``w = router(x)``; the router owns normalization."""

    op = "gate"
    schema: ClassVar[Schema] = {"n": count, "batched": flag}

    def slots(self, attrs: Mapping[str, Attr]) -> list[str]:
        """Return router and experts."""
        return numbered("experts", attrs)

    def check(self, node: Node, modules: Mapping[str, nn.Module]) -> None:
        """Refuse experts that cannot be called as one."""
        if node.attr("batched"):
            experts = {name: modules[name] for name in _experts(node)}
            check_alike(f"{node.id}: gate(batched=True)", experts)

    def emit(self, node: Node, out: Writer) -> None:
        """Write one statement."""
        stream = out.value(node.inputs[0])
        weights = call(out, node, stream, slot="router")
        if node.attr("batched"):
            modules = ", ".join(out.module(node, name) for name in _experts(node))
            run = out.bind("mix_together", mix_together)
            out.line(f"{out.result(node)} = {run}({weights}, [{modules}], {stream})")
            return
        experts = [call(out, node, stream, slot=name, takes_refs=False) for name in _experts(node)]
        out.line(f"{out.result(node)} = {out.bind('mix', mix)}({weights}, [{', '.join(experts)}])")


def _experts(node: Node) -> list[str]:
    return [slot.name for slot in node.slots if slot.name.startswith("experts.")]


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
    return _spread(weights, stacked)


def mix_together(weights: Tensor, experts: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Return the weighted sum of the outputs of experts that are called as one.

    Raises:
        NodeError: The shapes do not fit, and the message lists all of them; or the experts do what
            cannot be done for all at once, such as a decision by a value.
    """
    try:
        outputs = together(experts, x)
    except RuntimeError as error:
        if not str(error).startswith("vmap:"):
            raise
        raise NodeError(
            f"gate(batched=True): {type(experts[0]).__name__} cannot run once for all experts: "
            f"{str(error).removeprefix('vmap: ').splitlines()[0]}",
            hint="leave batched out",
        ) from error
    try:
        axis = weights.dim() - 1
        fits = axis >= 0 and weights.shape == (*outputs.shape[1 : axis + 1], len(experts))
    except AttributeError as error:
        raise _misfit(weights, list(outputs)) from error
    if not fits:
        raise _misfit(weights, list(outputs))
    return _spread(weights, outputs.movedim(0, axis))


def _spread(weights: Tensor, stacked: Tensor) -> Tensor:
    """Return the sum over the weights' last dimension; each weight counts for all that follows."""
    lead = weights.shape
    return (weights.reshape(*lead, *([1] * (stacked.dim() - len(lead)))) * stacked).sum(
        len(lead) - 1
    )


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
