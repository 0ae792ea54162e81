import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, NodeError
from flodl.nn import SoftmaxRouter


class Failing(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        raise self.error


def notes(error):
    return error.__notes__


def test_note_names_node_tag_module_and_inputs():
    graph = FlowBuilder(nn.Linear(4, 8)).tag("wide").through(nn.Linear(4, 2)).tag("head")
    graph = graph.label("net").build()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        graph(torch.randn(3, 4))
    assert notes(caught.value) == [
        "in graph 'net', node linear_2 #head: Linear(in_features=4, out_features=2, bias=True)\n"
        "  input from linear_1: [3, 8] float32 on cpu"
    ]
    assert caught.value.flodl_node == "linear_2"


def test_nested_graphs_add_one_note_each_innermost_first():
    inner = FlowBuilder(torch.neg).through(torch.neg, nn.Linear(5, 1)).label("inner").build()
    outer = FlowBuilder(nn.Identity()).through(inner).build()
    with pytest.raises(RuntimeError) as caught:
        outer(torch.randn(3, 4))
    first, second = notes(caught.value)
    assert first.startswith("in graph 'inner', node linear_3: Linear(")
    assert second.startswith("in graph, node graph_2: Graph(")
    assert caught.value.flodl_node == "graph_2.linear_3"


def test_graphs_of_equal_code_are_told_apart():
    graph = FlowBuilder(Failing(ValueError("x"))).build()
    for _ in range(3):
        graph = FlowBuilder(graph).build()
    with pytest.raises(ValueError, match="x") as caught:
        graph(torch.ones(1))
    assert len(notes(caught.value)) == 4
    assert caught.value.flodl_node == "graph_1.graph_1.graph_1.failing_1"


def test_type_of_the_exception_is_kept():
    error = torch.OutOfMemoryError("out of memory")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        FlowBuilder(Failing(error)).build()(torch.ones(1))
    assert caught.value is error
    assert len(notes(error)) == 1


def test_keyboard_interrupt_passes_untouched():
    with pytest.raises(KeyboardInterrupt) as caught:
        FlowBuilder(Failing(KeyboardInterrupt())).build()(torch.ones(1))
    assert not hasattr(caught.value, "__notes__")


def test_references_are_described():
    class Add(nn.Module):
        def forward(self, x, ctx):
            return x + ctx

    graph = FlowBuilder().input("ctx").through(Add()).using("ctx").build()
    with pytest.raises(RuntimeError) as caught:
        graph(torch.ones(2, 3), torch.ones(4, 5, dtype=torch.int64))
    assert "reference ctx from argument ctx: [4, 5] int64 on cpu" in notes(caught.value)[0]
    with pytest.raises(TypeError) as caught:
        graph(torch.ones(2), None)
    assert "reference ctx from argument ctx: None" in notes(caught.value)[0]


@pytest.mark.parametrize(
    ("step", "hint"),
    [
        (nn.LSTM(4, 4), "lstm_1 returns several values: pick one with out=0"),
        (lambda x: {"logits": x}, "returns several values: pick one with out='logits'"),
    ],
    ids=["tuple", "dict"],
)
@pytest.mark.parametrize(
    "consume",
    [lambda b: b.through(nn.Linear(4, 2)), lambda b: b.also(nn.Linear(4, 4))],
    ids=["through", "also"],
)
def test_several_values_in_the_stream_suggest_out(step, hint, consume):
    graph = consume(FlowBuilder(step)).build()
    with pytest.raises((TypeError, AttributeError)) as caught:
        graph(torch.randn(2, 4))
    assert hint in notes(caught.value)[0]


def test_sum_has_a_note_too():
    graph = FlowBuilder().also(nn.Linear(4, 3)).build()
    with pytest.raises(RuntimeError) as caught:
        graph(torch.randn(2, 4))
    assert notes(caught.value)[0].startswith(
        "in graph, node add_2: add\n  input from argument input"
    )


def test_modules_with_children_are_named_in_one_line():
    graph = FlowBuilder().gate(SoftmaxRouter(4, 2), [nn.Linear(4, 4), nn.Linear(4, 3)]).build()
    with pytest.raises(NodeError) as caught:
        graph(torch.randn(2, 4))
    (note,) = caught.value.__notes__
    assert note.startswith("in graph, node gate_1: SoftmaxRouter(…), Linear(in_features=4, ")


@pytest.mark.parametrize(("value", "out"), [({"a": 1}, "b"), ((1, 2), 5)])
def test_out_that_picks_nothing_says_what_it_is(value, out):
    graph = FlowBuilder().through(lambda x: value, out=out).build()
    with pytest.raises(LookupError) as caught:
        graph(torch.randn(2))
    where, hint = caught.value.__notes__
    assert where.startswith("in graph, node lambda_1: ")
    assert hint.strip().startswith(f"hint: out={out!r} picks from what the module returns")
