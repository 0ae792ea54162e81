import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import FixedSelector, SoftmaxRouter, StateAdd


def linear():
    return nn.Linear(4, 4)


@pytest.fixture
def picture():
    """A graph with every shape, whose names try to break out of quotes."""
    torch.manual_seed(0)

    class Hostile(nn.Identity):
        flodl_name = '"></text><script>alert(1)</script>\\"; evil [shape=none]'

    inner = FlowBuilder(linear()).tag("h").label("inner").build()
    flow = FlowBuilder(linear()).tag("first").input("ctx").through(nn.LayerNorm(4), nn.Dropout(0.1))
    flow = flow.also(linear()).fork(nn.Linear(4, 1)).tag("side").through(inner, nn.GELU())
    flow = flow.split([linear(), linear()]).merge("mean").loop_body(nn.Tanh()).for_n(3)
    flow = flow.gate(SoftmaxRouter(4, 2), [linear(), linear()]).using("first").tag("gate")
    flow = flow.switch(FixedSelector(0), [linear(), nn.Tanh()]).map(linear()).each()
    flow = flow.through(StateAdd()).using("ctx", "memory").tag("memory").through(Hostile())
    return flow.label("picture").build()
