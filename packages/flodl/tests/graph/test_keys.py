import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, Graph
from flodl.graph.keys import Namespace

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def linear():
    return nn.Linear(4, 4, bias=False)


def keys(builder):
    return list(builder.build().state_dict())


def test_key_is_requested_then_first_tag_then_label_then_id():
    def labeled():
        return FlowBuilder(linear()).tag("w").label("inner").build()

    assert keys(FlowBuilder(linear(), key="k").tag("t")) == ["k.weight"]
    assert keys(FlowBuilder(linear()).tag("t").tag("u")) == ["t.weight"]
    assert keys(FlowBuilder(labeled())) == ["inner.w.weight"]
    assert keys(FlowBuilder(labeled()).tag("t")) == ["t.w.weight"]
    assert keys(FlowBuilder(linear())) == ["linear_1.weight"]


def test_tag_of_a_residual_keys_its_modules():
    assert keys(FlowBuilder().also(linear()).tag("r")) == ["r.weight"]
    assert keys(FlowBuilder().also_with(linear(), linear()).tag("r")) == [
        "r_skip.weight",
        "r.weight",
    ]


def test_dots_make_namespaces_that_are_called_through():
    builder = FlowBuilder(linear(), key="bert.encoder.layer.0").through(
        linear(), key="bert.encoder.layer.1"
    )
    graph = builder.build()
    assert list(graph.state_dict()) == [
        "bert.encoder.layer.0.weight",
        "bert.encoder.layer.1.weight",
    ]
    assert isinstance(graph.get_submodule("bert.encoder"), Namespace)
    first, second = graph.parameters()
    assert torch.equal(graph(X), X @ first.T @ second.T)


@pytest.mark.parametrize("longer_first", [False, True])
def test_key_may_extend_the_key_of_another_node(longer_first):
    outer, inner = linear(), linear()
    pairs = [(outer, "encoder"), (inner, "encoder.layer.0")]
    builder = FlowBuilder()
    for module, key in pairs[::-1] if longer_first else pairs:
        builder = builder.through(module, key=key)
    graph = builder.build()
    assert set(graph.state_dict()) == {"encoder.weight", "encoder.layer.0.weight"}
    assert graph.get_submodule("encoder") is outer
    assert graph.get_submodule("encoder.layer.0") is inner
    expected = outer(inner(X)) if longer_first else inner(outer(X))
    assert torch.equal(graph(X), expected)


def test_extended_keys_build_twice():
    outer, inner = linear(), linear()
    trunk = FlowBuilder(outer, key="encoder").through(inner, key="encoder.layer.0")
    first, second = trunk.copy().build(), trunk.build()
    assert list(first.state_dict()) == list(second.state_dict())


def test_key_below_a_module_that_has_such_a_part_is_refused():
    builder = FlowBuilder(nn.Sequential(linear()), key="encoder").through(linear(), key="encoder.0")
    with pytest.raises(FlowError, match="Sequential at 'encoder' already has '0'"):
        builder.build()


@pytest.mark.parametrize("name", ["train", "forward", "tagged", "code", "training", "flodl_plan"])
def test_attribute_names_of_graphs_get_an_underscore(name):
    graph = FlowBuilder(linear()).tag(name).build()
    assert list(graph.state_dict()) == [f"{name}_.weight"]
    assert graph.tag_names == (name,)
    graph(X)


def test_private_attributes_cannot_be_hidden_by_a_tag():
    for name in [*vars(FlowBuilder().build()), "_modules"]:
        graph = FlowBuilder(linear()).tag(name).build()
        assert torch.equal(graph(X), X @ next(graph.parameters()).T)


def test_attribute_names_inside_namespaces_get_an_underscore():
    assert keys(FlowBuilder(linear(), key="a.train")) == ["a.train_.weight"]


def test_names_of_hub_models_are_free():
    free = (
        "bert roberta distilbert albert deberta embeddings encoder transformer pooler classifier "
        "pre_classifier qa_outputs cls lm_head lm_predictions predictions vocab_transform "
        "vocab_layer_norm vocab_projector memory hidden"
    )
    assert [name for name in free.split() if hasattr(Graph, name)] == []


def test_key_below_a_sequential_is_refused():
    flow = FlowBuilder(nn.Sequential(nn.Tanh()), key="enc").through(nn.Tanh(), key="enc.extra")
    with pytest.raises(FlowError, match="'enc' is a Sequential, which would run whatever"):
        flow.build()
