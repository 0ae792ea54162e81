import pytest
import torch
from torch import nn

from flodl.core.errors import FlowError, TraceError
from flodl.graph import FlowBuilder, GraphPathError, LoopBody, TraceEmit

X = torch.ones(1, 2)


class Halve(LoopBody):
    def __init__(self, name="size", sparse=False):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.name, self.sparse, self.calls = name, sparse, 0

    def step(self, x, refs, emit):
        emit.publish(self.name, x.sum())
        if self.sparse and self.calls % 2 == 0:
            emit.publish("even", x)
        self.calls += 1
        return x * self.scale + sum(refs.values())

    def reset(self):
        self.calls = 0


class Declared(Halve):
    emits = ("size",)


def looped(body=None, n=3, **options):
    flow = FlowBuilder().loop_body(body or Halve(sparse=True)).for_n(n, **options)
    return flow.tag("loop").build()


def test_values_are_kept_by_iteration_and_may_be_sparse():
    graph = looped()
    assert graph.traces("size") is None
    graph(X)
    assert [value.item() for value in graph.traces("size")] == [2.0, 1.0, 0.5]
    assert graph.trace_steps("even") == [0, 2]
    assert len(graph.traces("even")) == 2
    assert torch.equal(graph.last_trace("even"), X / 4)
    assert sorted(graph.traces_named) == ["even", "size"]
    assert sorted(graph.traces_by_node("loop_1")) == ["even", "size"]
    assert graph.trace_mask("even").tolist() == [True, True]
    assert graph.traces("loop") is None
    assert graph.traces("other") is None
    assert graph.trace_steps("other") == []


def test_each_call_begins_with_none():
    graph = looped()
    graph(X)
    graph(X)
    assert len(graph.traces("size")) == 3


def test_output_of_each_iteration_stands_under_the_tag():
    graph = looped(nn.Linear(2, 2), trace=True)
    graph(X)
    steps, x = graph.traces("loop"), X
    for value in steps:
        x = graph.get_submodule("loop.body")(x)
        assert torch.equal(value, x)
    assert list(graph.traces_by_node("loop_1")) == ["loop"]
    assert list(graph.traces_named) == ["loop"]


def test_traces_carry_gradients_until_detached():
    graph = looped()
    graph(X)
    graph.traces("size")[-1].backward()
    assert graph.get_submodule("loop.body").scale.grad is not None
    graph.detach_state()
    assert not graph.traces("size")[-1].requires_grad


def test_traces_with_remat_are_published_once():
    graph = looped(remat=True)
    graph(X).sum().backward()
    assert len(graph.traces("size")) == 3


def test_paths_may_index_entries():
    labeled = FlowBuilder().loop_body(Declared()).for_n(3, trace=True).tag("scan").label("letter")
    root = FlowBuilder(labeled.build()).build()
    root(X)
    assert root.validate_path("letter.scan[1]") == "trace"
    assert root.validate_path("letter.size") == "trace"
    assert torch.equal(root.traces_at("letter.scan[-1]"), X / 8)
    assert len(root.traces_at("letter.size")) == 3
    with pytest.raises(GraphPathError, match=r"scan\[7\]'\): the trace has 3 entries"):
        root.traces_at("letter.scan[7]")
    with pytest.raises(GraphPathError, match=r"traces_at\('letter'\): that is a subgraph"):
        root.traces_at("letter")


def test_second_value_in_one_iteration_is_an_error():
    class Twice(LoopBody):
        def step(self, x, refs, emit):
            emit.publish("a", x)
            emit.publish("a", x)
            return x

    with pytest.raises(TraceError, match=r"publish\('a'\): already published in iteration 0"):
        looped(Twice())(X)
    with pytest.raises(TraceError, match="needs a name"):
        looped(Halve(name=""))(X)


def test_one_name_in_two_loops_is_an_error():
    def two(first, second):
        return FlowBuilder().loop_body(first).for_n(1).tag("a").loop_body(second).for_n(1).build()

    with pytest.raises(TraceError, match="trace 'size' of loop_2 is already a trace of loop_1"):
        two(Declared(), Declared())
    graph = two(Halve(), Halve())
    with pytest.raises(TraceError, match="of loop_2 is already a trace of loop_1"):
        graph(X)
    graph = FlowBuilder().loop_body(Halve("loop")).for_n(2, trace=True).tag("loop").build()
    with pytest.raises(TraceError, match="'loop' of loop_1 is already a trace of loop_1"):
        graph(X)


def test_loops_in_act_mode_share_names_and_are_read_by_node():
    def act(flow):
        return flow.loop_body(nn.Identity()).until_cond(lambda s: s.sum(1), 2, mode="act")

    graph = act(act(FlowBuilder())).build()
    graph(X)
    with pytest.raises(TraceError, match="published by loop_1 and loop_2"):
        graph.traces("halt_prob")
    assert len(graph.traces_by_node("loop_2")["halt_prob"]) == 2
    assert graph.traces_named == {}


def test_masked_loops_keep_all_entries_and_a_mask():
    flow = FlowBuilder().loop_body(Halve()).while_cond(lambda s: 0.4 - s.max(), 4, mode="masked")
    graph = flow.tag("loop").build()
    graph(X)
    assert len(graph.traces("size")) == 4
    assert graph.trace_mask("size").tolist() == [True, True, False, False]
    assert graph.iterations("loop") == 2


def test_traced_loop_needs_a_tag():
    with pytest.raises(FlowError, match="loop_1 has trace=True but no tag"):
        FlowBuilder().loop_body(nn.Identity()).for_n(2, trace=True).build()


def test_iterations_are_asked_by_tag_or_id():
    graph = FlowBuilder().loop_body(torch.neg).while_cond(lambda s: -1, 4).tag("l").build()
    assert graph.iterations("l") is None
    graph(X)
    assert graph.iterations("loop_1") == 4
    with pytest.raises(GraphPathError, match=r"iterations\('lop'\): no such loop"):
        graph.iterations("lop")
    with pytest.raises(GraphPathError, match=r"traces_by_node\('l'\): no such node"):
        graph.traces_by_node("l")


def test_body_may_be_called_alone():
    body = Halve()
    assert torch.equal(body(X), X / 2)
    assert torch.equal(body.forward_via_step(X), X / 2)
    assert TraceEmit.discard().publish("a", X) is None
    with pytest.raises(NotImplementedError, match="LoopBody must define step"):
        LoopBody()(X)


def test_body_sees_its_references():
    graph = FlowBuilder().tag("x").loop_body(Halve()).for_n(1).using(other="x").build()
    assert torch.equal(graph(X), 1.5 * X)
