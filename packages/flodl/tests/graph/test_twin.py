import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.graph.twin import twin_of
from flodl.nn import StateAdd


def test_twin_shares_tensors_and_has_its_own_state():
    shared = nn.Linear(2, 2)
    inner = FlowBuilder(StateAdd()).using("m").tag("m").build()
    graph = FlowBuilder(shared).through(inner).through(shared).build()
    twin, x = twin_of(graph), torch.ones(1, 2)
    twin(x)
    assert graph.get_state() == {}
    assert list(twin.get_state()) == ["graph_2.m"]
    assert all(a is b for a, b in zip(twin.parameters(), graph.parameters(), strict=True))
    assert len(list(twin.modules())) == len(list(graph.modules()))
