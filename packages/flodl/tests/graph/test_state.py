import copy
import pickle

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, GraphPathError, NodeError, StateShapeError
from flodl.nn import StateAdd

X = torch.tensor([[1.0, -2.0]])


def counter():
    return FlowBuilder(StateAdd()).using("memory").tag("memory").build()


def recurrent():
    torch.manual_seed(0)
    builder = FlowBuilder(nn.Linear(2, 2)).tag("in").through(StateAdd()).using("memory")
    return builder.through(torch.tanh).tag("memory").build()


class Stateful(nn.Module):
    flodl_stateful = True

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        return x

    def reset(self):
        self.calls.append("reset")

    def detach_state(self):
        self.calls.append("detach")


def test_state_grows_over_calls_and_reset_starts_anew():
    graph = counter()
    for factor in (1, 2, 3):
        assert torch.equal(graph(X), factor * X)
    graph.reset_state()
    assert torch.equal(graph(X), X)


def test_a_tag_before_its_own_using_is_state_too():
    graph = FlowBuilder(StateAdd()).tag("memory").using("memory").build()
    graph(X)
    assert torch.equal(graph(X), 2 * X)


def test_forward_and_backward_references_mix():
    builder = FlowBuilder().tag("now").through(lambda x: 10 * x).through(StateAdd())
    graph = builder.using("now", "later").through(lambda x: x / 11).tag("later").build()
    assert torch.equal(graph(X), X)
    assert torch.allclose(graph(X), 12 * X / 11)


def test_several_readers_share_a_cell():
    builder = FlowBuilder(StateAdd()).using("m").through(lambda x: 0 * x + 1).tag("m")
    graph = builder.through(StateAdd()).using("m").through(StateAdd()).using(again="m").build()
    assert graph.state_names == ("m",)
    assert graph.has_state
    assert torch.equal(graph(X), 3 * torch.ones(1, 2))


def test_readers_before_the_tag_share_its_cell():
    builder = FlowBuilder(StateAdd()).using("m").through(StateAdd()).using("m").tag("m")
    graph = builder.build()
    assert len(graph.flodl_plan.cells) == 1
    graph(X)
    assert torch.equal(graph(X), 3 * X)


def test_gradients_flow_across_calls_until_detached():
    def hand(x1, x2, weight, bias, cut):
        first = torch.tanh(x1 @ weight.T + bias)
        if cut:
            first = first.detach()
        return torch.tanh(x2 @ weight.T + bias + first)

    for cut in (False, True):
        graph = recurrent()
        weight, bias = graph.get_submodule("in").weight, graph.get_submodule("in").bias
        x1, x2 = torch.randn(2, 3, 2)
        graph(x1)
        if cut:
            graph.detach_state()
        ours = torch.autograd.grad(graph(x2).sum(), [weight, bias])
        theirs = torch.autograd.grad(hand(x1, x2, weight, bias, cut).sum(), [weight, bias])
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


def test_end_step_allows_training_for_many_steps():
    graph = recurrent()
    for _ in range(10):
        graph(torch.randn(3, 2)).sum().backward()
        graph.end_step()
    assert graph.step_count == 10


def test_detach_covers_retained_tags():
    graph = recurrent()
    graph(X)
    assert graph.tagged("in").requires_grad
    graph.detach_state()
    assert not graph.tagged("in").requires_grad


def test_other_batch_size_is_never_broadcast():
    graph = recurrent()
    graph(torch.randn(3, 2))
    with pytest.raises(
        StateShapeError, match=r"'memory' has shape \[3, 2\].*batch of 1.*\n.*reset"
    ):
        graph(torch.randn(1, 2))
    graph.end_sequence()
    graph(torch.randn(1, 2))


@pytest.mark.parametrize(
    ("init", "first"),
    [
        ((-1, 2), [[0.0, 0.0]]),
        ([-1, 2], [[0.0, 0.0]]),
        (torch.tensor([[5.0, 6.0]]), [[5.0, 6.0]]),
        (lambda x: 3 * x, [[3.0, -6.0]]),
    ],
    ids=["shape", "list", "tensor", "function"],
)
def test_declared_start(init, first):
    graph = FlowBuilder(StateAdd()).using("m").tag("m").state("m", init).build()
    assert torch.equal(graph(X), X + torch.tensor(first))
    assert torch.equal(graph(X), 2 * X + torch.tensor(first))
    graph.reset_state()
    assert torch.equal(graph(X), X + torch.tensor(first))


def test_declared_shape_may_differ_from_the_stream_and_is_checked():
    class Append(nn.Module):
        def forward(self, x, memory):
            return x + memory.mean()

    builder = FlowBuilder(Append()).using("memory").fork(lambda x: x.repeat(1, 2)).tag("memory")
    graph = builder.state("memory", (-1, 4)).build()
    graph(torch.ones(3, 2))
    assert torch.equal(graph(torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(StateShapeError, match=r"\[3, 4\].*shape \[2, 4\]"):
        graph(torch.ones(2, 2))


def test_start_of_a_stream_that_is_no_tensor_must_be_declared():
    class Add(nn.Module):
        def forward(self, x, memory):
            return x[0] + memory

    builder = FlowBuilder(lambda x: (x, x)).through(Add()).using("memory").tag("memory")
    with pytest.raises(NodeError, match=r"stream of tuple\n.*init=") as caught:
        builder.copy().build()(X)
    assert "out=0" in caught.value.__notes__[0]
    graph = builder.state("memory", torch.zeros(1, 2)).build()
    assert torch.equal(graph(X), X)


def test_state_is_no_parameter_and_moves_with_the_graph():
    graph = recurrent()
    graph(X)
    assert "memory" not in " ".join(graph.state_dict())
    graph.to(torch.float64)
    assert graph.get_state()["memory"].dtype is torch.float64
    assert graph(X.double()).dtype is torch.float64
    graph.to("meta")
    assert graph.get_state()["memory"].is_meta


def test_tensor_that_starts_state_moves_too():
    graph = FlowBuilder(StateAdd()).using("m").tag("m").state("m", torch.ones(1, 2)).build()
    assert graph.double()(X.double()).dtype is torch.float64


def test_get_and_set_state_by_name():
    graph = counter()
    assert graph.get_state() == {}
    graph(X)
    saved = graph.get_state()
    graph(X)
    graph.set_state(saved)
    assert torch.equal(graph(X), 2 * X)
    with pytest.raises(GraphPathError, match=r"no state 'memry'\nhint: did you mean 'memory'"):
        graph.set_state({"memry": X})
    graph.set_state({})
    assert torch.equal(graph(X), X)


def test_fresh_state_restores_also_after_an_error():
    graph = counter()
    graph(X)
    with graph.fresh_state():
        assert torch.equal(graph(X), X)
    assert torch.equal(graph(X), 2 * X)
    with pytest.raises(ValueError, match="stop"), graph.fresh_state():
        graph(5 * X)
        raise ValueError("stop")
    assert torch.equal(graph(X), 3 * X)


def test_root_controls_the_state_of_nested_graphs_and_modules():
    stateful = Stateful()
    inner = counter()
    root = FlowBuilder(nn.Sequential(inner, stateful)).tag("box").build()
    assert root.state_names == ("box.0.memory",)
    x = X.clone().requires_grad_()
    root(x)
    assert inner.get_state()["memory"].requires_grad
    root.detach_state()
    assert not inner.get_state()["memory"].requires_grad
    with root.fresh_state():
        assert torch.equal(root(X), X)
    assert torch.equal(root(X), 2 * X)
    root.reset()
    assert torch.equal(root(X), X)
    assert stateful.calls == ["detach", "reset", "reset"]


def test_copies_carry_detached_state():
    graph = recurrent()
    graph(X)
    expected = graph(X)
    graph.set_state({"memory": graph.get_state()["memory"]})
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(recurrent()))):
        other.detach_state()
    twin = copy.deepcopy(graph)
    assert not twin.get_state()["memory"].requires_grad
    assert torch.equal(twin(X), graph(X))
    assert not torch.equal(twin(X), expected)


def test_version_grows_when_other_cells_are_filled():
    graph = counter()
    version = graph.version
    graph.set_state({"memory": X})
    assert graph.version > version
    version = graph.version
    graph.set_state({"memory": 2 * X})
    graph.reset_state()
    assert graph.version == version


@pytest.mark.parametrize("start", ["zeros", 3, (2, "a"), (2, -2), (True, 2), None])
def test_start_of_a_state_is_a_shape_a_tensor_or_a_function(start):
    flow = FlowBuilder(nn.Linear(2, 2)).through(StateAdd()).using("h").tag("h")
    with pytest.raises(FlowError, match="a state begins with a shape, a tensor or a function"):
        flow.state("h", start)
