import copy

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, NodeError
from flodl.nn import SigmoidRouter, SoftmaxRouter


def gated(router, n=3, dim=4):
    return FlowBuilder().gate(router, [nn.Linear(dim, 5) for _ in range(n)]).tag("gate").build()


@pytest.mark.parametrize("router", [SoftmaxRouter, SigmoidRouter])
def test_output_is_the_weighted_sum_of_all_experts(router):
    graph, x = gated(router(4, 3)), torch.randn(2, 4)
    gate = graph.get_submodule("gate")
    weights = gate.router(x)
    stacked = torch.stack([expert(x) for expert in gate.experts.children()], dim=1)
    expected = (weights.unsqueeze(-1) * stacked).sum(1)
    assert torch.equal(graph(x), expected)
    parameters = list(graph.parameters())
    ours = torch.autograd.grad(graph(x).sum(), parameters)
    assert all(map(torch.equal, ours, torch.autograd.grad(expected.sum(), parameters)))


@pytest.mark.parametrize("rest", [(4,), (3, 4), (3, 6, 4)], ids=str)
def test_one_weight_a_sample_spreads_over_any_shape(rest):
    x = torch.randn(2, *rest)
    graph = gated(lambda x: torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]))
    experts = list(graph.get_submodule("gate.experts").children())
    assert torch.allclose(
        graph(x), torch.stack([experts[0](x[0]), 2 * experts[2](x[1])]), atol=1e-6
    )


def test_one_weight_a_token_spreads_over_features():
    x = torch.randn(2, 3, 4)
    graph = gated(SoftmaxRouter(4, 3))
    flat = graph(x.reshape(6, 4)).reshape(2, 3, 5)
    assert torch.allclose(graph(x), flat, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            torch.ones(2, 2),
            r"weights of shape \[2, 2\] for 3 experts .* \[2, 5\], \[2, 5\], \[2, 5\]",
        ),
        (torch.ones(7, 3), r"weights of shape \[7, 3\]"),
        (torch.ones(2, 5, 1, 3), r"weights of shape \[2, 5, 1, 3\]"),
        (torch.tensor(1.0), r"weights of shape \[\]"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(NodeError, match=message):
        gated(lambda x: weights)(torch.randn(2, 4))


def test_experts_of_different_shapes_are_refused():
    graph = FlowBuilder().gate(SoftmaxRouter(4, 2), [nn.Linear(4, 5), nn.Linear(4, 6)]).build()
    with pytest.raises(NodeError, match=r"\[2, 5\], \[2, 6\]\nhint: the router returns"):
        graph(torch.randn(2, 4))


def test_references_go_to_the_router_alone():
    flow = FlowBuilder().tag("x").gate(SoftmaxRouter(4, 2), [nn.Identity(), nn.Identity()])
    graph, x = flow.using("x").build(), torch.randn(2, 4)
    assert "refs={'x'" in graph.code
    router = graph.get_submodule("gate_1.router")
    expected = (router(2 * x).unsqueeze(-1) * torch.stack([x, x], 1)).sum(1)
    assert torch.equal(graph(x), expected)


def test_gradients_agree_with_finite_differences():
    graph = gated(SoftmaxRouter(4, 3)).double()
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(graph, (x,))


def test_router_or_expert_that_returns_no_tensor_is_said():
    x = torch.randn(2, 4)
    several = FlowBuilder().gate(SoftmaxRouter(4, 2), [nn.LSTM(4, 4), nn.LSTM(4, 4)]).build()
    with pytest.raises(NodeError, match=r"gate: an expert returned tuple of 2: \[2, 4\] float32"):
        several(x)
    with pytest.raises(NodeError, match="gate: a router returned None; one tensor is needed"):
        FlowBuilder().gate(lambda t: None, [nn.ReLU(), nn.ReLU()]).build()(x)


class Doubled(nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor
        self.inner = nn.Linear(4, 5)

    def forward(self, x):
        return self.factor * self.inner(x)


def two_kinds(make, n=3):
    """Return a plain gate and a batched one, with equal weights."""
    router, experts = SoftmaxRouter(4, n), [make() for _ in range(n)]
    plain = FlowBuilder().gate(copy.deepcopy(router), copy.deepcopy(experts)).tag("gate").build()
    return plain, FlowBuilder().gate(router, experts, batched=True).tag("gate").build()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(4, 5),
        lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5)),
        Doubled,
    ],
    ids=["linear", "chain", "own"],
)
@pytest.mark.parametrize("lead", [(2,), (2, 3)], ids=str)
def test_experts_that_run_as_one_give_the_same_numbers(make, lead):
    plain, batched = two_kinds(make)
    x = torch.randn(*lead, 4)
    torch.testing.assert_close(batched(x), plain(x))
    weights = torch.randn_like(plain(x))
    ours, theirs = (
        torch.autograd.grad((graph(x) * weights).sum(), list(graph.parameters()))
        for graph in (batched, plain)
    )
    torch.testing.assert_close(ours, theirs)
    assert batched.state_dict().keys() == plain.state_dict().keys()


def test_experts_that_run_as_one_can_be_frozen_one_by_one():
    _, batched = two_kinds(lambda: nn.Linear(4, 5))
    frozen = batched.get_submodule("gate.experts.1")
    frozen.requires_grad_(False)
    batched(torch.randn(2, 4)).sum().backward()
    assert frozen.weight.grad is None
    assert batched.get_submodule("gate.experts.0").weight.grad is not None


def test_weights_of_experts_that_run_as_one_must_fit():
    graph = FlowBuilder().gate(lambda x: torch.ones(2, 2), [nn.Linear(4, 5)] * 3, batched=True)
    with pytest.raises(NodeError, match=r"weights of shape \[2, 2\] for 3 experts"):
        graph.build()(torch.randn(2, 4))


def with_hook():
    module = nn.Linear(4, 5)
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            nn.Linear(4, 6),
            r"experts.1 is not like its twin in experts.0: parameters weight \[6, 4\]",
        ),
        (nn.Linear(4, 5, bias=False), "experts.1 is not like its twin"),
        (nn.Conv1d(4, 5, 1), "Conv1d, not Linear"),
        (nn.Linear(4, 5).double(), "experts.1 is not like its twin"),
        (nn.Sequential(nn.Linear(4, 5)), "Sequential, not Linear"),
        (with_hook(), r"experts.1 \(Linear\) has hooks"),
        (nn.BatchNorm1d(4), r"experts.1 \(BatchNorm1d\) keeps buffers"),
    ],
)
def test_experts_that_are_not_alike_cannot_run_as_one(other, message):
    flow = FlowBuilder().gate(SoftmaxRouter(4, 2), [nn.Linear(4, 5), other], batched=True)
    with pytest.raises(FlowError, match=message):
        flow.build()


def test_settings_of_experts_that_run_as_one_must_be_equal():
    experts = [Doubled(), Doubled(3.0)]
    with pytest.raises(FlowError, match="factor=3.0, not 2.0"):
        FlowBuilder().gate(SoftmaxRouter(4, 2), experts, batched=True).build()
    deeper = [nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4), nn.GELU())]
    with pytest.raises(FlowError, match="modules of other names"):
        FlowBuilder().gate(SoftmaxRouter(4, 2), deeper, batched=True).build()


def test_a_batched_gate_is_stored_as_one(tmp_path):
    _, batched = two_kinds(lambda: nn.Linear(4, 5))
    x = torch.randn(2, 4)
    batched.save(tmp_path / "gate.fdl")
    assert torch.equal(type(batched).load(tmp_path / "gate.fdl")(x), batched(x))


class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 5)

    def forward(self, x):
        out = self.inner(x)
        return out if out.sum() > 0 else -out


def test_experts_that_decide_by_a_value_cannot_run_as_one():
    graph = FlowBuilder().gate(SoftmaxRouter(4, 2), [Deciding(), Deciding()], batched=True).build()
    with pytest.raises(NodeError, match="Deciding cannot run once for all experts: It looks like"):
        graph(torch.randn(2, 4))
