import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, LoopBody
from flodl.graph.nodes import hop
from flodl.nn import ThresholdHalt

# The compiler looks at the gradients of values that have none.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


def loop(body, kind, cond, most, mode):
    flow = getattr(FlowBuilder().loop_body(body), kind)(cond, most, mode=mode)
    return flow.tag("loop").build()


@pytest.mark.parametrize("kind", ["while_cond", "until_cond"])
@pytest.mark.parametrize("most", [1, 4])
def test_compiled_loop_equals_that_of_the_host_with_and_without_gradients(kind, most):
    torch.manual_seed(0)
    torch._dynamo.reset()
    body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    host, graph = (loop(body, kind, ThresholdHalt(0.5), most, mode) for mode in ("auto", "hop"))
    compiled = torch.compile(graph, fullgraph=True, backend="aot_eager")
    counts = set()
    for scale in (0.0, 0.1, 0.4, 1.0, 3.0):
        x = (scale * torch.randn(3, 4)).requires_grad_()
        expected = host(x)
        counts.add(host.iterations("loop"))
        outputs = compiled(x)
        assert torch.allclose(outputs, expected, atol=1e-6)
        assert graph.iterations("loop") == host.iterations("loop")
        wanted = [x, *body.parameters()]
        ours, theirs = (
            torch.autograd.grad((out + x).sum(), wanted, allow_unused=True)
            for out in (outputs, expected)
        )
        for a, b in zip(ours, theirs, strict=True):
            zero = torch.zeros(())
            assert torch.allclose(zero if a is None else a, zero if b is None else b, atol=1e-6)
        with torch.no_grad():
            assert torch.allclose(compiled(x), expected, atol=1e-6)
    assert len(counts) > 1 or most == 1


def test_references_reach_the_body():
    class Add(nn.Module):
        def forward(self, x, refs):
            return x + refs["a"]

    flow = FlowBuilder(nn.Identity()).tag("a").loop_body(Add())
    graph = flow.while_cond(lambda x: x - 5, 9, mode="hop").using("a").build()
    x = torch.full((1,), 2.0)
    torch._dynamo.reset()
    assert graph(x).item() == 6
    assert torch.compile(graph, fullgraph=True, backend="aot_eager")(x).item() == 6


def test_loop_is_experimental_for_capture_and_says_what_to_use():
    graph = loop(nn.Tanh(), "until_cond", ThresholdHalt(0.5), 3, "hop")
    assert str(graph.capture_report()) == (
        'loop_1 (#loop): runs through torch.while_loop, experimental; use mode="masked"'
    )
    assert graph.summary(torch.ones(2, 4)).rows[1].output == "[2, 4]"


def test_what_looks_into_iterations_is_refused(monkeypatch):
    class Body(LoopBody):
        def step(self, x, refs, emit):
            return x

    with pytest.raises(FlowError, match="mode='hop' runs as one operator, and Body is a LoopBody"):
        loop(Body(), "until_cond", ThresholdHalt(0.5), 3, "hop")
    monkeypatch.setattr(hop, "_OPERATOR", "torch.no_such_module")
    with pytest.raises(FlowError, match="needs torch.while_loop, which torch .* lacks"):
        loop(nn.Tanh(), "until_cond", ThresholdHalt(0.5), 3, "hop")
