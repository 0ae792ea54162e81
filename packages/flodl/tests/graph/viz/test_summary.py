import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from flodl.graph import FlowBuilder
from flodl.nn import ArgmaxSelector, SoftmaxRouter, StateAdd, ThresholdHalt


def shapes(graph, example, depth=1):
    return {row.id: row.output for row in graph.summary(example, depth).rows}


def test_shapes_are_computed_without_running():
    graph = FlowBuilder(nn.Conv2d(3, 8, 3)).tag("conv").through(nn.BatchNorm2d(8), nn.Flatten())
    graph = graph.through(nn.Linear(8 * 36, 10)).build()
    before = {name: value.clone() for name, value in graph.state_dict().items()}
    table = graph.summary(torch.randn(2, 3, 8, 8))
    assert shapes(graph, torch.randn(2, 3, 8, 8)) == {
        "input_input_0": "[2, 3, 8, 8]",
        "conv2d_1": "[2, 8, 6, 6]",
        "batchnorm2d_2": "[2, 8, 6, 6]",
        "flatten_3": "[2, 288]",
        "linear_4": "[2, 10]",
    }
    assert all(torch.equal(before[name], value) for name, value in graph.state_dict().items())
    assert graph.tagged("conv") is None
    assert "conv2d_1       #conv  Conv2d" in str(table)
    assert "3.1K params, 3.1K trainable, 0 frozen" in str(table)
    assert "<td>conv2d_1</td>" in table._repr_html_()
    assert shapes(graph, None)["linear_4"] == "?"


def test_operations_are_counted_for_each_step():
    inner = FlowBuilder(nn.Linear(4, 6)).through(nn.ReLU()).label("inner").build()
    flow = FlowBuilder(nn.Linear(4, 4)).loop_body(nn.Linear(4, 4)).for_n(3).through(inner)
    graph = flow.gate(SoftmaxRouter(6, 2), [nn.Linear(6, 8), nn.Linear(6, 8)]).build()
    table = graph.summary(torch.ones(2, 4), depth=2)
    product = {"linear_1": 2 * 2 * 4 * 4, "loop_2": 3 * 2 * 2 * 4 * 4, "graph_3": 2 * 2 * 4 * 6}
    product |= {"  linear_1": 2 * 2 * 4 * 6, "gate_4": 2 * 2 * 6 * 2 + 2 * (2 * 2 * 6 * 8)}
    assert {row.id: row.flops for row in table.rows if row.flops} == product
    assert table.flops == sum(product.values()) - product["  linear_1"]
    assert table.flops == counted(graph, torch.ones(2, 4))
    assert "784 FLOPs" in str(table)
    assert graph.summary().flops is None
    assert "FLOPs" not in str(graph.summary())


def counted(graph, x):
    with FlopCounterMode(display=False) as counter:
        graph(x)
    return counter.get_total_flops()


def test_nested_graphs_open_and_several_inputs_are_a_tuple():
    inner = FlowBuilder(nn.Linear(4, 6)).build()
    flow = FlowBuilder(inner).input("ctx").through(StateAdd()).using("ctx", "m").tag("m")
    graph = flow.state("m", torch.zeros(2, 6)).build()
    example = (torch.ones(2, 4), torch.ones(2, 6))
    rows = shapes(graph, example, depth=2)
    assert rows["  linear_1"] == "[2, 6]"
    assert rows["stateadd_3"] == "[2, 6]"


def test_decisions_are_not_asked_for():
    graph = FlowBuilder().switch(ArgmaxSelector(4, 2), [nn.Linear(4, 3), nn.Linear(4, 5)])
    graph = graph.loop_body(nn.Tanh()).while_cond(ThresholdHalt(0.0), 3).build()
    table = graph.summary(torch.ones(2, 4))
    assert [row.output for row in table.rows] == ["[2, 4]", "[2, 3]", "[2, 3]"]
    assert [row.is_dynamic for row in table.rows] == [False, True, True]
    assert "* depends on data" in str(table)


def test_build_with_an_example_names_the_first_mismatch():
    flow = FlowBuilder(nn.Linear(4, 3)).through(nn.Linear(4, 2))
    with pytest.raises(RuntimeError) as caught:
        flow.build(example=torch.ones(2, 4))
    assert caught.value.flodl_node == "linear_2"


def test_trainable_counts_follow_freezing():
    graph = FlowBuilder(nn.Linear(2, 2)).tag("a").through(nn.Linear(2, 2)).build()
    graph.freeze("a")
    assert [row.trainable for row in graph.summary().rows] == [0, 0, 6]
