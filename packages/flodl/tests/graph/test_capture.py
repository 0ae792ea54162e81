import pytest
import torch
from torch import nn

from flodl.core.errors import CaptureError
from flodl.graph import FlowBuilder, LoopBody
from flodl.nn import (
    ArgmaxSelector,
    FixedSelector,
    LearnedHalt,
    SoftmaxRouter,
    StateAdd,
    ThresholdHalt,
)

# The compiler looks at the gradients of values that have none.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def linear():
    return nn.Linear(4, 4)


class Publishing(LoopBody):
    emits = ("size",)

    def __init__(self):
        super().__init__()
        self.layer = linear()

    def step(self, x, refs, emit):
        emit.publish("size", x.norm())
        return torch.tanh(self.layer(x))


def memory():
    return FlowBuilder(linear()).through(StateAdd()).using("m").through(torch.tanh).tag("m").build()


STATIC = {
    "chain": lambda: FlowBuilder(linear()).tag("a").also(linear()).through(StateAdd()).using("a"),
    "parallel": lambda: FlowBuilder().split([linear(), linear()]).merge("mean"),
    "inputs": lambda: FlowBuilder(linear()).fork(linear()).tag("b").through(StateAdd()).using("b"),
    "state": lambda: FlowBuilder(memory()),
    "for": lambda: FlowBuilder().loop_body(linear()).for_n(3, trace=True).tag("t"),
    "remat": lambda: FlowBuilder().loop_body(linear()).for_n(3, remat=True),
    "traces": lambda: FlowBuilder().loop_body(Publishing()).for_n(3),
    "body with state": lambda: FlowBuilder().loop_body(memory()).for_n(3),
    "masked while": lambda: (
        FlowBuilder().loop_body(linear()).while_cond(ThresholdHalt(1.0), 3, mode="masked")
    ),
    "masked rows": lambda: (
        FlowBuilder()
        .loop_body(linear())
        .until_cond(LearnedHalt(4), 3, mode="masked", halt="sample")
    ),
    "act": lambda: FlowBuilder().loop_body(linear()).until_cond(LearnedHalt(4), 3, mode="act"),
    "gate": lambda: FlowBuilder().gate(SoftmaxRouter(4, 2), [linear(), linear()]),
    "fixed": lambda: FlowBuilder().switch(FixedSelector(1), [linear(), linear()]),
    "dense": lambda: FlowBuilder().switch(ArgmaxSelector(4, 2), [linear(), linear()], mode="dense"),
    "rows": lambda: FlowBuilder().switch(
        lambda x: (x[:, 0] > 0).long(), [linear(), linear()], per_sample=True
    ),
    "slices": lambda: FlowBuilder().map(nn.Linear(2, 2)).slices(2),
    "batched": lambda: FlowBuilder().map(nn.Linear(2, 2)).batched().slices(2),
    "each": lambda: FlowBuilder().map(linear()).each(),
}


@pytest.mark.parametrize("name", STATIC)
def test_static_flows_compile_whole(name):
    torch.manual_seed(0)
    graph = STATIC[name]().build()
    assert graph.is_static
    expected = [graph(X) for _ in range(3)]
    grads = torch.autograd.grad(expected[0].sum(), list(graph.parameters()), allow_unused=True)
    graph.reset_state()
    torch._dynamo.reset()
    compiled = torch.compile(graph, fullgraph=True, backend="aot_eager")
    outputs = [compiled(X) for _ in range(3)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(expected, outputs, strict=True))
    ours = torch.autograd.grad(outputs[0].sum(), list(graph.parameters()), allow_unused=True)
    for a, b in zip(grads, ours, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, atol=1e-5)


def dynamic():
    body = (
        FlowBuilder().loop_body(linear()).while_cond(ThresholdHalt(1.0), 3).label("inner").build()
    )
    flow = FlowBuilder(body).switch(ArgmaxSelector(4, 2), [linear(), linear()]).tag("route")
    return flow.loop_body(linear()).until_cond(ThresholdHalt(1.0), 3).build()


def test_report_names_every_blocker_with_its_remedy():
    graph = dynamic()
    report = graph.capture_report()
    assert not report.ok
    assert not graph.is_static
    assert str(report) == (
        'switch_2 (#route): index read on host; use mode="dense"\n'
        'loop_3: halt condition read on host; use mode="masked"\n'
        'inner.loop_1: halt condition read on host; use mode="masked"'
    )
    with pytest.raises(CaptureError, match=r"cannot be captured whole:\nswitch_2 \(#route\)"):
        report.require()
    assert graph.may_skip_parameters


def test_until_never_skips_parameters():
    graph = FlowBuilder().loop_body(linear()).until_cond(ThresholdHalt(1.0), 3).build()
    assert not graph.may_skip_parameters


def test_modules_and_profiling_block_too():
    class Dynamic(nn.Identity):
        flodl_dynamic = "asks the host"

    graph = FlowBuilder(nn.Sequential(Dynamic())).tag("a").build()
    graph.enable_profiling()
    assert [str(item) for item in graph.capture_report().blockers] == [
        "the graph: each node is timed; call disable_profiling()",
        "a.0: asks the host; leave it out, or run without capture",
    ]
    STATIC["chain"]().build().capture_report().require()


def test_compile_in_place_keeps_results():
    torch._dynamo.reset()
    graph = STATIC["chain"]().build()
    expected = graph(X)
    graph.compile(backend="aot_eager")
    assert torch.allclose(graph(X), expected, atol=1e-6)
    graph = dynamic()
    expected = graph(X)
    graph.compile(backend="eager")
    assert torch.allclose(graph(X), expected, atol=1e-6)


def test_static_cells_keep_their_place_and_their_meaning():
    graph, eager = FlowBuilder(memory()).build(), None
    eager = FlowBuilder(memory()).build()
    eager.load_state_dict(graph.state_dict())
    graph.static_cells(X)
    version = graph.version
    buffer = graph.get_state()["graph_1.m"]
    for _ in range(3):
        graph(X).square().sum().backward()
        eager(X).square().sum().backward()
        eager.end_step()
        graph.end_step()
    assert graph.get_state()["graph_1.m"] is buffer
    assert torch.equal(buffer, eager.get_state()["graph_1.m"])
    for ours, theirs in zip(graph.parameters(), eager.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    graph.reset_state()
    eager.reset_state()
    assert not buffer.any()
    assert torch.equal(graph(X), eager(X))
    graph.set_state({"graph_1.m": torch.ones(3, 4)})
    assert torch.equal(buffer, torch.ones(3, 4))
    assert graph.version == version
    graph.release_cells()
    assert graph.version > version


def test_static_cells_need_shapes_and_a_start_that_can_be_repeated():
    flow = FlowBuilder(StateAdd()).using("m").tag("m")
    with pytest.raises(CaptureError, match="pass example inputs"):
        flow.copy().build().static_cells()
    with pytest.raises(CaptureError, match="state 'm' begins with a function"):
        flow.copy().state("m", lambda x: x).build().static_cells(X)
    graph = flow.copy().state("m", torch.ones(3, 4)).build()
    graph.static_cells(X)
    assert torch.equal(graph(X), X + 1)
    graph.reset_state()
    assert torch.equal(graph(X), X + 1)
    graph = flow.build()
    graph(X)
    graph.static_cells()
    assert torch.equal(graph(X), 2 * X)
