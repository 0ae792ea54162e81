from torch import nn

from flodl.graph import FlowBuilder
from flodl.graph.topology import topology_of
from flodl.graph.topology.compare import differences


def of(n=2, width=3, tag="a"):
    flow = FlowBuilder(nn.Linear(width, width)).tag(tag).loop_body(nn.Tanh()).for_n(n)
    return topology_of(flow.build())


def test_steps_and_names_that_differ_are_listed():
    lines = differences(of(), of(n=5, tag="b"))
    assert lines[0] == 'tags: {"a": ["linear_1", 0]} in the file, {"b": ["linear_1", 0]} here'
    assert lines[1].startswith("step 3: loop_2 (loop")
    assert len(lines) == 2


def test_long_lists_are_cut():
    deep = FlowBuilder()
    for _ in range(30):
        deep = deep.through(nn.Tanh())
    lines = differences(of(), topology_of(deep.build()))
    assert len(lines) == 13
    assert lines[-1].startswith("… ")


def test_equal_topologies_differ_in_shapes_only():
    assert differences(of(), of()) == ["the shapes of parameters in modules of the same kinds"]
