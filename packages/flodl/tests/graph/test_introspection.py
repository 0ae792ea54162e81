from torch import nn

from flodl.graph import Edge, FlowBuilder
from flodl.graph.ir import Port
from flodl.nn import StateAdd


def build():
    builder = FlowBuilder(nn.Linear(4, 4)).tag("h").also(nn.Linear(4, 4, bias=False))
    return builder.through(StateAdd()).using("h", "m").tag("m").tag("n").build()


def test_nodes_tell_what_each_step_is():
    nodes = {node.id: node for node in build().nodes}
    assert list(nodes) == [
        "input_input_0",
        "linear_1",
        "linear_2",
        "add_3",
        "state_read_m_5",
        "stateadd_4",
    ]
    linear = nodes["linear_1"]
    assert (linear.op, linear.type, linear.key, linear.tags) == ("module", "Linear", "h", ("h",))
    assert (linear.num_params, linear.level, linear.inputs) == (20, 1, ("input_input_0",))
    assert nodes["stateadd_4"].inputs == ("add_3", "linear_1", "state_read_m_5")
    assert nodes["stateadd_4"].tags == ("m", "n")
    assert nodes["add_3"].num_params == 0


def test_edges_tell_stream_reference_and_state_apart():
    edges = build().edges
    assert Edge(Port("linear_1"), "stateadd_4", "reference", "h") in edges
    assert Edge(Port("stateadd_4"), "state_read_m_5", "state", "m") in edges
    assert Edge(Port("add_3"), "stateadd_4", "stream") in edges


def test_levels_group_what_does_not_depend_on_each_other():
    graph = FlowBuilder().split([nn.Identity(), nn.Identity()]).merge().build()
    assert graph.levels == (("input_input_0",), ("identity_1", "identity_2"), ("merge_3",))
