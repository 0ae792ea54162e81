import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, NodeError
from flodl.nn import LearnedHalt

EPS = 0.01


def pondering(body, halt, most, eps=EPS):
    flow = FlowBuilder().loop_body(body).until_cond(halt, most, mode="act", eps=eps)
    return flow.tag("loop").build()


def sample_by_hand(x, body, halt, most, eps):
    """The formula of the paper, for one sample."""
    state, spent, total = x, 0.0, 0.0
    for n in range(1, most + 1):
        state = body(state)
        h = torch.sigmoid(halt(state)).squeeze()
        if n == most or spent + h >= 1 - eps:
            rest = 1 - spent
            return total + rest * state, n + rest
        total = total + h * state
        spent = spent + h
    raise AssertionError


@pytest.mark.parametrize("seed", range(8))
def test_output_and_cost_follow_the_formula(seed):
    torch.manual_seed(seed)
    body, halt = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), LearnedHalt(3)
    with torch.no_grad():
        halt.proj.weight.mul_(4)
    x = torch.randn(5, 3)
    graph = pondering(body, halt, 4)
    out = graph(x)
    cost = graph.last_trace("ponder_cost")
    hand = [sample_by_hand(row, body, halt, 4, EPS) for row in x.split(1)]
    expected, costs = torch.cat([o for o, _ in hand]), torch.stack([c for _, c in hand])
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.allclose(cost, costs, atol=1e-6)
    parameters = [*body.parameters(), *halt.parameters()]
    ours = torch.autograd.grad(out.sum() + 0.1 * cost.mean(), parameters)
    theirs = torch.autograd.grad(expected.sum() + 0.1 * costs.mean(), parameters)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))
    assert graph.iterations("loop").tolist() == (costs.detach() - 1e-6).floor().int().tolist()


def test_ponder_cost_teaches_the_halt():
    torch.manual_seed(0)
    graph = pondering(nn.Linear(3, 3), LearnedHalt(3), 5)
    graph(torch.randn(4, 3))
    graph.last_trace("ponder_cost").mean().backward()
    assert graph.get_submodule("loop.cond.proj").bias.grad.abs().sum() > 0


def test_probabilities_are_traced():
    graph = pondering(nn.Linear(3, 3), LearnedHalt(3), 5)
    graph(torch.randn(4, 3))
    assert [tuple(value.shape) for value in graph.traces("halt_prob")] == [(4,)] * 5
    assert graph.trace_steps("ponder_cost") == [4]
    assert graph.trace_mask("halt_prob").shape == (5, 4)


def test_single_iteration_is_the_body():
    body = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    assert torch.equal(pondering(body, LearnedHalt(3), 1)(x), body(x))


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(1)
    body, halt = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), LearnedHalt(2)
    graph = pondering(body, halt, 3).double()
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(graph, (x,))


def test_condition_must_answer_for_each_row():
    with pytest.raises(NodeError, match=r"act mode the condition returned shape \[1\] for 2 rows"):
        pondering(nn.Identity(), lambda s: s.sum().reshape(1), 3)(torch.ones(2, 3))
