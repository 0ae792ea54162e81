import pytest
import torch
from torch import nn

from flodl.core.errors import TopologyError
from flodl.graph import FlowBuilder
from flodl.graph.topology import topology_of
from flodl.nn import StateAdd


def test_everything_that_changes_the_computation_is_in_it():
    graph = FlowBuilder(nn.Linear(2, 2)).tag("a").loop_body(nn.Tanh()).for_n(2).build()
    document = topology_of(graph)
    assert document["version"] == 1
    assert document["inputs"] == ["input"]
    assert document["tags"] == {"a": ["linear_1", 0]}
    assert [node["id"] for node in document["nodes"]] == ["input_input_0", "linear_1", "loop_2"]
    assert document["nodes"][2]["attrs"]["n"] == 2
    assert document["nodes"][1]["key"] == "a"
    assert document["nodes"][1]["module"][""]["config"]["in_features"] == 2


def test_all_unknown_classes_are_listed_at_once():
    class Own(nn.Linear):
        pass

    class Other(nn.Identity):
        pass

    flow = FlowBuilder(Own(2, 2)).through(nn.Sequential(Other())).through(lambda x: x)
    graph = flow.through(StateAdd()).using("m").tag("m").state("m", lambda x: x).build()
    assert topology_of(graph)["nodes"][1]["module"][""]["type"] == "Own"
    with pytest.raises(TopologyError) as caught:
        topology_of(graph, rebuildable=True)
    assert "Own, Other, function '<lambda>', the function that begins state 'm'" in str(
        caught.value
    )
    assert "@flodl.register_module" in str(caught.value)


def test_large_starts_of_state_are_refused():
    flow = FlowBuilder(StateAdd()).using("m").tag("m").state("m", torch.ones(300, 300))
    with pytest.raises(TopologyError, match="state 'm', which begins with 90000 elements"):
        topology_of(flow.build(), rebuildable=True)
