import copy
import json

import pytest
import torch
from torch import nn

from flodl.core.errors import TopologyError
from flodl.graph import FlowBuilder, Graph
from flodl.graph.topology import graph_from, topology_of


def test_every_construct_comes_back(everything):
    document = json.loads(json.dumps(topology_of(everything, rebuildable=True)))
    again = graph_from(document, Graph)
    assert again.structural_hash == everything.structural_hash
    assert again.code == everything.code
    assert again.tag_names == everything.tag_names
    assert again.label == "whole"
    assert again.internal_tags == ("_out",)
    assert again.subgraph("inner").is_composed
    assert topology_of(again) == topology_of(everything)
    again.load_state_dict(everything.state_dict())
    x, aux = torch.randn(3, 4), None
    for _ in range(3):
        assert torch.equal(again(x, aux), everything(x, aux))


def test_hash_of_every_construct_is_golden(everything):
    golden = "f589ce1693b93a93a51775bb577f9d9292c7ac3c48daf3b717482d187f1436f9"
    assert everything.structural_hash == golden
    everything.to(torch.float64)
    assert everything.structural_hash == golden


def test_keys_that_extend_each_other_and_shared_modules_come_back():
    shared = nn.Linear(2, 2)
    flow = FlowBuilder(nn.Linear(2, 2), key="enc").through(nn.Linear(2, 2), key="enc.layer.0")
    graph = flow.through(shared, key="albert.layer").loop_body(shared).for_n(3).build()
    again = graph_from(topology_of(graph, rebuildable=True), Graph)
    assert list(again.state_dict()) == list(graph.state_dict())
    assert again.structural_hash == graph.structural_hash
    again.load_state_dict(graph.state_dict())
    assert torch.equal(again(torch.ones(1, 2)), graph(torch.ones(1, 2)))


def small():
    flow = FlowBuilder(nn.Linear(2, 2)).tag("a").loop_body(nn.Tanh()).for_n(2)
    return topology_of(flow.tag("b").build(), rebuildable=True)


def changed(**edits):
    """The small topology with values replaced at dotted paths."""
    document = small()
    for path, value in edits.items():
        *steps, last = [int(p) if p.isdigit() else p for p in path.split("__")]
        place = document
        for step in steps:
            place = place[step]
        place[last] = value
    return document


HOSTILE = [
    changed(version=2),
    changed(inputs=["x; import os"]),
    changed(inputs=["input", "other"]),
    changed(inputs=["lambda"]),
    changed(nodes__1__id="linear_1 = exec('1')"),
    changed(nodes__1__id="input_input_0"),
    changed(nodes__1__op="exec"),
    changed(nodes__1__inputs=[["loop_2", 0]]),
    changed(nodes__1__inputs=[["input_input_0", 1]]),
    changed(nodes__1__inputs=[["nothing", 0]]),
    changed(nodes__1__attrs={}),
    changed(nodes__1__attrs={"out": {"a": 1}}),
    changed(nodes__1__attrs={"out": None, "more": 1}),
    changed(nodes__1__type="a b"),
    changed(nodes__1__style="exec"),
    changed(nodes__1__owners=["nothing"]),
    changed(nodes__1__module={}),
    changed(nodes__1__module={"": {"path": "forward", "type": "torch.nn.Tanh", "config": {}}}),
    changed(nodes__1__module={"": {"path": "a']; x", "type": "torch.nn.Tanh", "config": {}}}),
    changed(
        nodes__1__module={"": {"path": "a", "type": "os.system", "config": {"command": "true"}}}
    ),
    changed(nodes__1__module={"": {"path": "never"}}),
    changed(nodes__1__refs=[["a", "a=1)", "input_input_0", 0]]),
    changed(nodes__2__attrs__n=0),
    changed(nodes__2__attrs__n="3):\n import os"),
    changed(nodes__2__attrs__detach_every="1: pass"),
    changed(nodes__2__attrs__eps=float("nan")),
    changed(nodes__2__attrs__kind="forever"),
    changed(nodes__2__attrs__reduce="exec()"),
    changed(tags={"a b": ["linear_1", 0]}),
    changed(tags={"a": ["nothing", 0]}),
    changed(groups={"g": ["nothing"]}),
    changed(outputs=[]),
    changed(outputs=[["nothing", "linear_1", 0]]),
    changed(label="a.b"),
    changed(
        states=[
            {"name": "s", "writer": ["linear_1", 0], "start": "stream", "shape": [], "value": None}
        ]
    ),
    changed(nodes=[]),
    changed(nodes=3),
    changed(nodes=[3]),
    changed(tags=None),
    [],
    None,
    "topology",
]


@pytest.mark.parametrize("document", HOSTILE, ids=range(len(HOSTILE)))
def test_documents_that_describe_no_graph_are_refused(document):
    with pytest.raises(TopologyError):
        graph_from(copy.deepcopy(document), Graph)


@pytest.mark.parametrize("key", [key for key in small() if key != "children"])
def test_every_part_is_needed(key):
    document = small()
    del document[key]
    with pytest.raises(TopologyError):
        graph_from(document, Graph)


def test_the_small_topology_is_sound():
    assert torch.is_tensor(graph_from(small(), Graph)(torch.ones(1, 2)))
