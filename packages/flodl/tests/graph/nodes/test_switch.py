import pytest
import torch
from torch import nn

from flodl.core.errors import FlowError, NodeError, SwitchIndexError
from flodl.graph import FlowBuilder
from flodl.nn import ArgmaxSelector, FixedSelector, StateAdd

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def switched(selector, n=3, **options):
    torch.manual_seed(0)
    branches = [nn.Linear(4, 4) for _ in range(n)]
    return FlowBuilder().switch(selector, branches, **options).tag("s").build()


def branch(graph, index):
    return graph.get_submodule(f"s.branches.{index}")


@pytest.mark.parametrize("mode", ["auto", "dense"])
@pytest.mark.parametrize(
    "index",
    [1, torch.tensor(1), torch.tensor([1]), torch.tensor([[1]], dtype=torch.int32)],
    ids=str,
)
def test_only_the_chosen_branch_counts(index, mode):
    graph = switched(lambda x: index, mode=mode)
    out = graph(X)
    assert torch.equal(out, branch(graph, 1)(X))
    out.sum().backward()
    grads = [branch(graph, i).weight.grad for i in range(3)]
    assert grads[1] is not None
    if mode == "auto":
        assert grads[0] is None
        assert grads[2] is None
    else:
        assert not torch.stack([grads[0], grads[2]]).any()


def test_only_the_chosen_branch_runs():
    ran = []
    flow = FlowBuilder().switch(
        lambda x: 1, [lambda x: ran.append(0), lambda x: ran.append(1) or x]
    )
    flow.build()(X)
    assert ran == [1]


@pytest.mark.parametrize("index", [1.0, torch.tensor(1.0), True], ids=str)
def test_whole_numbers_of_any_type_are_indices(index):
    graph = switched(lambda x: index)
    assert torch.equal(graph(X), branch(graph, 1)(X))


@pytest.mark.parametrize(
    "index",
    [-1, 3, 0.5, float("nan"), float("inf"), torch.tensor(-1), torch.tensor(7), "a", None],
    ids=str,
)
def test_bad_index_is_an_error_with_value_and_count(index):
    value = index.item() if isinstance(index, torch.Tensor) else index
    with pytest.raises(SwitchIndexError) as caught:
        switched(lambda x: index)(X)
    assert f"returned {value!r}; there are 3 branches" in str(caught.value)


@pytest.mark.parametrize("mode", ["auto", "dense"])
def test_several_indices_are_refused_with_a_way_out(mode):
    with pytest.raises(SwitchIndexError, match=r"\[3\] values; one is needed\nhint: .*per_sample"):
        switched(lambda x: torch.tensor([0, 1, 2]), mode=mode)(X)


def test_fixed_selector_is_a_plain_call():
    graph = switched(FixedSelector(2))
    assert "_branch" not in graph.code
    assert torch.equal(graph(X), branch(graph, 2)(X))
    graph.set_submodule("s.router", FixedSelector(0))
    assert torch.equal(graph(X), branch(graph, 0)(X))
    with pytest.raises(FlowError, match=r"FixedSelector\(3\), but switch_1 has 3 branches"):
        switched(FixedSelector(3))


def test_argmax_selector_decides_for_the_batch():
    graph = switched(ArgmaxSelector(4, 3))
    logits = graph.get_submodule("s.router").proj(X).mean(0)
    assert torch.equal(graph(X), branch(graph, int(logits.argmax()))(X))


def test_rows_choose_for_themselves():
    index = torch.tensor([2, 0, 2])
    for shaped in (index, index.reshape(3, 1)):
        graph = switched(lambda x, shaped=shaped: shaped, per_sample=True)
        expected = torch.stack([branch(graph, i)(X)[row] for row, i in enumerate(index)])
        assert torch.equal(graph(X), expected)
        graph(X).sum().backward()
        assert branch(graph, 2).weight.grad.abs().sum() > 0
        assert not branch(graph, 1).weight.grad.any()


@pytest.mark.parametrize("answer", [torch.tensor([0, 1]), 1], ids=str)
def test_rows_need_an_index_each(answer):
    with pytest.raises(SwitchIndexError, match="one index for each of the 3 rows"):
        switched(lambda x: answer, per_sample=True)(X)


def test_dense_branches_need_one_shape():
    flow = FlowBuilder().switch(lambda x: 0, [nn.Linear(4, 2), nn.Linear(4, 3)], mode="dense")
    with pytest.raises(NodeError, match=r"they have \[3, 2\], \[3, 3\]"):
        flow.build()(X)


def test_cond_mode_equals_auto():
    graph = switched(lambda x: (x.sum() * 0 + 2).long(), mode="cond")
    assert torch.allclose(graph(X), branch(graph, 2)(X))
    assert torch.equal(switched(lambda x: 1, mode="cond")(X), branch(graph, 1)(X))


def test_references_go_to_the_selector_alone():
    class Selector(nn.Module):
        def forward(self, x, hint):
            return int(hint.sum())

    flow = FlowBuilder().fork(lambda x: x[:1, 0] * 0 + 1).tag("hint")
    graph = flow.switch(Selector(), [torch.neg, torch.exp]).using("hint").build()
    assert torch.equal(graph(X), X.exp())


def test_state_may_pass_through_a_switch():
    flow = FlowBuilder(StateAdd()).using("m").switch(FixedSelector(0), [nn.Identity(), torch.neg])
    graph = flow.tag("m").build()
    graph(X)
    assert torch.equal(graph(X), 2 * X)


def test_modes_that_exclude_each_other():
    with pytest.raises(FlowError, match="a choice for each row runs all branches"):
        switched(lambda x: 0, mode="cond", per_sample=True)
    with pytest.raises(FlowError, match="'eager' is none of 'auto', 'dense', 'cond'"):
        switched(lambda x: 0, mode="eager")
