import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import (
    ArgmaxSelector,
    Detach,
    FixedSelector,
    LearnedHalt,
    Reshape,
    SigmoidRouter,
    SoftmaxRouter,
    StateAdd,
    ThresholdHalt,
)


@pytest.fixture
def everything():
    """One graph with every construct, all of whose modules a file can describe."""
    torch.manual_seed(0)
    pair = lambda: [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.GELU())]  # noqa: E731
    inner = FlowBuilder(nn.Linear(4, 4)).input("ctx").through(StateAdd()).using("ctx", "m")
    inner = inner.through(torch.tanh).tag("m").label("inner").build()
    shared = nn.Linear(4, 4, bias=False)
    flow = FlowBuilder(nn.Linear(4, 4), key="enc.first").tag("a").input("aux")
    flow = flow.through(inner).using(ctx="a").also(shared).tag("b").through(shared)
    flow = flow.also_with(nn.LayerNorm(4, eps=1e-3), Detach()).fork(nn.Linear(4, 2)).tag("side")
    flow = flow.split(pair()).tag_group("g").merge("mean").split(pair()).merge("stack", dim=0)
    flow = flow.through(nn.Flatten(0, 1)).loop_body(nn.Linear(4, 4)).for_n(2, trace=True).tag("f")
    flow = flow.loop_body(nn.Tanh()).while_cond(ThresholdHalt(0.5), 3, mode="masked")
    flow = flow.loop_body(nn.Tanh()).until_cond(LearnedHalt(4), 3, mode="act", eps=0.05)
    flow = flow.gate(SoftmaxRouter(4, 2), pair()).using("f").gate(SigmoidRouter(4, 2), pair())
    flow = flow.switch(FixedSelector(1), pair()).switch(ArgmaxSelector(4, 2), pair(), mode="dense")
    flow = (
        flow.map(nn.Linear(2, 2))
        .batched()
        .slices(2)
        .map(nn.Tanh())
        .each()
        .tag("rows")
        .map(nn.GELU())
        .over("f")
    )
    flow = flow.through(StateAdd()).using("w").state("w", (-1, 4)).tag("w")
    flow = flow.through(StateAdd()).using("v").state("v", torch.ones(6, 4)).tag("v")
    return flow.through(Reshape(-1, 2)).tag("_out").label("whole").build()
