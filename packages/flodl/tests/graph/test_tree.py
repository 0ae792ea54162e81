import pickle

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, GraphPathError
from flodl.nn import SoftmaxRouter

X = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))


def scan(label="scan"):
    torch.manual_seed(0)
    return FlowBuilder(nn.Linear(2, 2)).tag("hidden").label(label).build()


def model():
    encoder = FlowBuilder(scan()).through(scan("read")).tag("out").label("encoder").build()
    return FlowBuilder(encoder).through(nn.Linear(2, 2)).tag("classifier").build()


def test_subgraphs_by_path():
    root = model()
    assert root.subgraph("encoder.scan").label == "scan"
    assert list(root.tree_children()) == ["encoder"]
    assert root.child_graph("encoder") is root.subgraph("encoder")
    assert root.child_graph("nothing") is None
    assert root.validate_path("encoder.scan") == "subgraph"
    assert root.subgraph("encoder").is_composed
    assert not root.is_composed
    with pytest.raises(GraphPathError, match=r"subgraph\('classifier'\): that is a tag"):
        root.subgraph("classifier")


def test_parameters_have_names_of_their_own_graph():
    root = model()
    names = [name for name, _ in root.named_parameters_at("encoder.scan")]
    assert names == ["hidden.weight", "hidden.bias"]
    assert [name for name, _ in root.named_parameters_at("encoder.scan.hidden")] == names
    assert len(root.parameters_at("encoder")) == 4
    assert root.named_buffers_at("encoder") == []


def test_tag_of_a_construct_means_its_modules():
    flow = FlowBuilder().also(nn.Linear(2, 2)).tag("also")
    flow = flow.also_with(nn.Linear(2, 2), nn.BatchNorm1d(2)).tag("both")
    flow = flow.gate(SoftmaxRouter(2, 2), [nn.Linear(2, 2), nn.Linear(2, 2)]).tag("gate")
    graph = flow.split([nn.Linear(2, 2), nn.Linear(2, 2)]).merge().tag("merged").build()
    assert [n for n, _ in graph.named_parameters_at("also")] == ["also.weight", "also.bias"]
    names = [n for n, _ in graph.named_parameters_at("both")]
    assert names == ["both.weight", "both.bias", "both_skip.weight", "both_skip.bias"]
    assert graph.named_buffers_at("both")[0][0] == "both.running_mean"
    assert len(graph.parameters_at("gate")) == 6
    assert graph.parameters_at("merged") == []


def test_frozen_parts_do_not_move_even_with_a_stale_gradient():
    root = model()
    optimizer = torch.optim.AdamW(root.parameters(), lr=0.1)
    root(X).sum().backward()
    root.freeze("encoder")
    assert root.is_frozen("encoder.scan.hidden")
    before = [p.clone() for p in root.parameters_at("encoder")]
    optimizer.step()
    root(X).sum().backward()
    optimizer.step()
    assert all(map(torch.equal, before, root.parameters_at("encoder")))
    assert len(list(root.trainable_parameters())) == 2
    root.thaw("encoder.scan")
    assert not root.is_frozen("encoder")
    assert root.is_frozen("encoder.read")


def test_freezing_nothing_is_refused_unless_allowed():
    graph = FlowBuilder(nn.Tanh()).tag("t").build()
    with pytest.raises(GraphPathError, match=r"freeze\('t'\): there are no parameters"):
        graph.freeze("t")
    graph.freeze("t", allow_empty=True)
    assert not graph.is_frozen("t")


def test_pinned_subtree_keeps_its_mode_and_statistics():
    norm = FlowBuilder(nn.BatchNorm1d(2)).tag("norm").label("inner").build()
    root = FlowBuilder(norm).through(nn.Linear(2, 2)).tag("head").build()
    outer = FlowBuilder(root).build()
    root.freeze("inner", pin_eval=True)
    outer.train()
    assert root.training
    assert not norm.training
    outer(X)
    assert not norm.get_submodule("norm").running_mean.any()
    copied = pickle.loads(pickle.dumps(outer)).train()
    assert not copied.get_submodule("graph_1.inner").training
    root.thaw("inner")
    assert norm.training
    outer(X)
    assert norm.get_submodule("norm").running_mean.any()


def test_pin_on_a_tag_and_a_more_specific_pin():
    inner = FlowBuilder(nn.Dropout()).tag("drop").through(nn.Dropout()).tag("other").label("inner")
    root = FlowBuilder(inner.build()).build()
    root.set_training_at("inner", False, pin=True)
    root.set_training_at("inner.drop", True, pin=True)
    root.train()
    graph = root.subgraph("inner")
    assert graph.get_submodule("drop").training
    assert not graph.get_submodule("other").training
    root.thaw("inner.drop")
    assert not graph.get_submodule("drop").training
    root.eval()
    root.set_training_at("inner", True)
    root.eval()
    assert not graph.training


def test_changes_grow_the_version_also_of_parents():
    root = model()
    for change in (
        lambda: root.freeze("encoder"),
        lambda: root.thaw("encoder.scan"),
        lambda: root.set_training_at("encoder", False, pin=True),
        lambda: root.subgraph("encoder").freeze("scan"),
    ):
        version = root.version
        change()
        assert root.version > version
    version = root.version
    root.train()
    root.eval()
    assert root.version == version


def test_groups_for_an_optimizer():
    root = model()
    root.freeze("encoder.read")
    groups = root.trainable_groups({"encoder": {"lr": 1e-4}, "classifier": {"lr": 1e-3}})
    assert [(len(group["params"]), group["lr"]) for group in groups] == [(2, 1e-4), (2, 1e-3)]
    torch.optim.AdamW(groups)
    with pytest.raises(FlowError, match="'encoder' and 'encoder.scan' share parameters"):
        root.trainable_groups({"encoder": {}, "encoder.scan": {}})


def test_internal_tags_are_listed():
    graph = FlowBuilder(nn.Tanh()).tag("_a").through(nn.Tanh()).tag("b").internal("b").build()
    assert graph.internal_tags == ("_a", "b")
