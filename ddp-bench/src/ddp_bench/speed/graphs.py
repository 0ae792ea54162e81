"""The same ten models as graphs, made of the layers of their plain twins."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from ddp_bench.speed import plain
from flodl.graph import FlowBuilder, Graph
from flodl.nn import LearnedHalt, SoftmaxRouter, Unrolled


def graph_of(model: nn.Module, *, batched: bool = False) -> Graph:  # noqa: PLR0911 - one return a model
    """Return a plain model of this suite as a graph with copies of its layers.

    Args:
        model: The plain model.
        batched: Whether all experts of a gate run as one.
    """
    match copy.deepcopy(model):
        case plain.Chain() as chain:
            return FlowBuilder().through(*chain.layers).build()
        case plain.Tower() as tower:
            return _tower(tower)
        case plain.Feedback() as feedback:
            return _feedback(feedback)
        case plain.Scale() as scale:
            return FlowBuilder(scale).build()
        case plain.Refine() as refine:
            flow = FlowBuilder().through(*refine.entry)
            return (
                flow.loop_body(_residual(refine.body))
                .for_n(refine.times)
                .through(refine.out)
                .build()
            )
        case plain.Gated() as gated:
            return _gated(gated, batched=batched)
        case plain.Transformer() as transformer:
            return _transformer(transformer)
        case plain.Gru() as gru:
            return FlowBuilder(Unrolled(gru.cell)).through(gru.out).build()
        case plain.Lstm() as lstm:
            return FlowBuilder(lstm.rnn, out=0).through(last_step).through(lstm.out).build()
    raise TypeError(f"{type(model).__name__} is no model of the speed suite")


def _feedback(model: plain.Feedback) -> Graph:
    halt = LearnedHalt(model.halt.in_features)
    halt.proj = model.halt
    flow = FlowBuilder().through(*model.entry).loop_body(_residual(model.body))
    return flow.until_cond(halt, model.times).through(model.out).build()


def _tower(tower: plain.Tower) -> Graph:
    flow = FlowBuilder(tower.entry)
    for inner in tower.blocks:
        flow = flow.also(inner)
    return flow.through(tower.out).build()


def _residual(body: plain.Residual) -> Graph:
    return FlowBuilder().also(body.inner).build()


def _gated(gated: plain.Gated, *, batched: bool) -> Graph:
    router = SoftmaxRouter(gated.router.in_features, gated.router.out_features)
    router.proj = gated.router
    flow = FlowBuilder(gated.entry).through(gated.activation)
    experts = list(gated.experts)
    return flow.gate(router, experts, batched=batched).through(gated.out).build()


class SelfAttention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for ``[batch, tokens, width]``."""
        out: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


def _layer(layer: plain.EncoderLayer, number: int) -> Graph:
    flow = FlowBuilder().also(SelfAttention(layer.attention)).through(layer.norm1)
    inner = nn.Sequential(layer.up, layer.activation, layer.down)
    return flow.also(inner).through(layer.norm2).label(f"layer{number}").build()


def _transformer(model: plain.Transformer) -> Graph:
    flow = FlowBuilder(model.embedding).through(model.position)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, plain.EncoderLayer), "the layers of a transformer"
        flow = flow.through(_layer(layer, number))
    return flow.through(model.out).build()


def last_step(x: Tensor) -> Tensor:
    """Return the last step of ``[batch, steps, width]``."""
    return x[:, -1]
