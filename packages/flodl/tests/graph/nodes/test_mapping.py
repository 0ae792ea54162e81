import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, NodeError
from flodl.nn import StateAdd

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def rows(shapes):
    def body(x):
        shapes.append(tuple(x.shape))
        return 2 * x

    return body


def test_each_calls_the_body_for_every_row():
    shapes = []
    assert torch.equal(FlowBuilder().map(rows(shapes)).each().build()(X), 2 * X)
    assert shapes == [(1, 4)] * 3


def test_batched_calls_it_once():
    shapes = []
    assert torch.equal(FlowBuilder().map(rows(shapes)).batched().each().build()(X), 2 * X)
    assert shapes == [(3, 4)]


def test_empty_input_gives_the_right_shape():
    graph = FlowBuilder().map(nn.Linear(4, 7)).each().build()
    assert graph(torch.empty(0, 4)).shape == (0, 7)
    graph = FlowBuilder().map(nn.Linear(2, 3)).slices(2).build()
    assert graph(torch.empty(0, 4)).shape == (0, 6)


def test_over_goes_over_an_earlier_tag():
    flow = (
        FlowBuilder(torch.neg).tag("neg").through(torch.exp).tag("exp").map(torch.sin).over("neg")
    )
    assert torch.equal(flow.build()(X), torch.sin(-X))


def test_over_an_unknown_or_later_tag_is_refused():
    with pytest.raises(FlowError, match=r"over\('late'\): no step before it has that tag"):
        FlowBuilder(torch.neg).tag("early").map(torch.sin).over("late")


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8)], ids=str)
@pytest.mark.parametrize("batched", [True, False])
def test_slices_of_the_last_dimension(shape, batched):
    x, body = torch.randn(shape), nn.Linear(4, 3)
    builder = FlowBuilder().map(body)
    graph = (builder.batched() if batched else builder).slices(2).build()
    expected = torch.cat([body(x[..., :4]), body(x[..., 4:])], dim=-1)
    assert torch.allclose(graph(x), expected, atol=1e-6)
    ours = torch.autograd.grad(graph(x).sum(), body.weight)
    assert torch.allclose(ours[0], torch.autograd.grad(expected.sum(), body.weight)[0], atol=1e-5)


@pytest.mark.parametrize("x", [torch.ones(4), torch.ones(2, 5)], ids=["flat", "odd"])
def test_slices_that_do_not_fit_are_refused(x):
    with pytest.raises(NodeError, match=r"slices\(2\) of a tensor of shape .*\n.*multiple of 2"):
        FlowBuilder().map(nn.Identity()).slices(2).build()(x)


def test_body_must_keep_rows():
    with pytest.raises(
        NodeError, match=r"row 0, of shape \[1, 4\], the body returned shape \[2, 4\]"
    ):
        FlowBuilder().map(lambda x: x.repeat(2, 1)).each().build()(X)
    with pytest.raises(NodeError, match=r"3 rows the batched body returned shape \[4\]"):
        FlowBuilder().map(lambda x: x.sum(0)).batched().each().build()(X)
    with pytest.raises(NodeError, match="without dimensions has no rows"):
        FlowBuilder().map(nn.Identity()).each().build()(torch.tensor(1.0))


def test_references_go_to_every_call():
    flow = FlowBuilder().fork(lambda x: x[:1]).tag("first").map(StateAdd()).each().using("first")
    assert torch.equal(flow.build()(X), X + X[:1])


@pytest.mark.parametrize("batched", [True, False])
def test_gradients_agree_with_finite_differences(batched):
    builder = FlowBuilder().map(nn.Sequential(nn.Linear(4, 2), nn.Tanh()))
    graph = (builder.batched() if batched else builder).each().build().double()
    assert torch.autograd.gradcheck(graph, (X.double().requires_grad_(),))


def test_kind_count_and_batching_are_part_of_the_hash():
    def of(finish, batched=False):
        builder = FlowBuilder().tag("x").map(nn.Identity())
        return finish(builder.batched() if batched else builder).build().structural_hash

    hashes = {
        of(lambda b: b.each()),
        of(lambda b: b.each(), batched=True),
        of(lambda b: b.over("x")),
        of(lambda b: b.slices(2)),
        of(lambda b: b.slices(4)),
    }
    assert len(hashes) == 5


@pytest.mark.parametrize("value", [(1, 2), None, {"a": 1}, [3]])
def test_body_that_returns_no_tensor_is_said(value):
    for flow in (FlowBuilder().map(lambda x: value).each(),
                 FlowBuilder().map(lambda x: value).batched().slices(2)):  # fmt: skip
        with pytest.raises(NodeError, match="map: the body returned .*; one tensor is needed"):
            flow.build()(X)
