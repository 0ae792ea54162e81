import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, FlowWarning, LoopBody, NodeError
from flodl.nn import LearnedHalt, StateAdd, ThresholdHalt

X = torch.tensor([[1.0, 2.0]])
CONDITIONAL = ["while_cond", "until_cond"]


def double(x):
    return 2 * x


def loop(body, kind, *args, **options):
    return getattr(FlowBuilder().loop_body(body), kind)(*args, **options).tag("loop").build()


def by_hand(x, body, halt, most, kind):
    """The state and the number of iterations, with a loop written out."""
    count = 0
    for step in range(most):
        if kind == "while_cond" and halt(x):
            break
        x = body(x)
        count += 1
        if kind == "until_cond" and step < most - 1 and halt(x):
            break
    return x, count


def test_for_n_repeats_the_body():
    graph = loop(double, "for_n", 3)
    assert torch.equal(graph(X), 8 * X)
    assert graph.iterations("loop") == 3
    assert "for step_loop_1 in range(3):\n        loop_1 = m['loop']._modules['body'](loop_1)" in (
        graph.code
    )


def test_gradients_flow_through_all_iterations():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return x + self.bias

    graph = loop(Shift(), "for_n", 3)
    graph(torch.zeros(1)).sum().backward()
    assert graph.get_submodule("loop.body").bias.grad == 3


def test_detach_every_cuts_gradients():
    body = nn.Linear(2, 2)
    graph = loop(body, "for_n", 5, detach_every=2)
    x = X
    for step in range(5):
        x = body(x.detach() if step in {2, 4} else x)
    ours = torch.autograd.grad(graph(X).sum(), body.weight)
    assert torch.equal(ours[0], torch.autograd.grad(x.sum(), body.weight)[0])


def test_remat_gives_the_same_gradients():
    body = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    plain, saving = loop(body, "for_n", 3), loop(body, "for_n", 3, remat=True)
    grads = [
        torch.autograd.grad(graph(X).sum(), list(body.parameters())) for graph in (plain, saving)
    ]
    assert all(map(torch.equal, *grads))


@pytest.mark.parametrize("kind", CONDITIONAL)
@pytest.mark.parametrize("mode", ["auto", "masked", "hop"])
@pytest.mark.parametrize("threshold", [-1.0, 2.5, 9.0, 1e9])
@pytest.mark.parametrize("most", [1, 4])
def test_positive_condition_halts(kind, mode, threshold, most):
    body, halt = nn.Linear(2, 2), ThresholdHalt(threshold)
    with torch.no_grad():
        body.weight.copy_(2 * torch.eye(2))
        body.bias.zero_()
    graph = loop(body, kind, halt, most, mode=mode)
    x = X.clone().requires_grad_()
    expected, count = by_hand(x, body, lambda s: halt(s) > 0, most, kind)
    assert torch.equal(graph(x), expected)
    assert graph.iterations("loop") == count
    if count:
        inputs = [x, *body.parameters()]
        ours = torch.autograd.grad(graph(x).sum(), inputs)
        assert all(map(torch.equal, ours, torch.autograd.grad(expected.sum(), inputs)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", CONDITIONAL)
def test_masked_equals_auto_for_random_thresholds(kind, seed):
    torch.manual_seed(seed)
    body, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(4, 3, requires_grad=True)
    halt = ThresholdHalt(float(torch.rand(()) * 1.2))
    graphs = [loop(body, kind, halt, 6, mode=mode) for mode in ("auto", "masked")]
    outputs = [graph(x) for graph in graphs]
    assert torch.equal(*outputs)
    assert graphs[0].iterations("loop") == graphs[1].iterations("loop")
    grads = [torch.autograd.grad(out.sum() + x.sum(), x) for out in outputs]
    assert torch.equal(*[grad[0] for grad in grads])


def test_rows_halt_for_themselves():
    graph = loop(double, "while_cond", lambda s: s - 5, 6, mode="masked", halt="sample")
    x = torch.tensor([[1.0], [4.0], [10.0]])
    assert torch.equal(graph(x), torch.tensor([[8.0], [8.0], [10.0]]))
    assert graph.iterations("loop").tolist() == [3, 1, 0]
    until = loop(double, "until_cond", lambda s: s - 5, 6, mode="masked", halt="sample")
    assert torch.equal(until(x), torch.tensor([[8.0], [8.0], [20.0]]))


@pytest.mark.parametrize("mode", ["auto", "masked", "hop"])
def test_condition_is_not_asked_after_the_last_iteration(mode):
    asked = []

    def never(state):
        asked.append(state)
        return state.sum() * 0

    loop(double, "until_cond", never, 4, mode=mode)(X)
    assert len(asked) == 3
    loop(double, "while_cond", never, 4, mode=mode)(X)
    assert len(asked) == 3 + 4


@pytest.mark.parametrize("mode", ["auto", "masked", "hop"])
@pytest.mark.parametrize(
    ("reduce", "condition", "halts"),
    [
        ("all", [1.0, -1.0], False),
        ("all", [1.0, 1.0], True),
        ("any", [1.0, -1.0], True),
        ("any", [0.0, -1.0], False),
        ("mean", [1.0, -2.0], False),
        ("mean", [3.0, -2.0], True),
    ],
)
def test_several_elements_halt_together(reduce, condition, halts, mode):
    graph = loop(
        double, "while_cond", lambda s: torch.tensor(condition), 1, reduce=reduce, mode=mode
    )
    assert torch.equal(graph(X), X if halts else 2 * X)


@pytest.mark.parametrize("answer", [True, 1.5, 2])
def test_condition_may_be_a_number(answer):
    assert torch.equal(loop(double, "while_cond", lambda s: answer, 3)(X), X)
    assert torch.equal(loop(double, "while_cond", lambda s: answer, 3, mode="masked")(X), X)
    assert torch.equal(loop(double, "while_cond", lambda s: -1.0, 3)(X), 8 * X)


@pytest.mark.parametrize("answer", [float("nan"), torch.tensor([float("nan")])], ids=str)
def test_nan_halts_with_one_warning(answer):
    graph = loop(double, "until_cond", lambda s: answer, 3)
    with pytest.warns(FlowWarning, match="loop_1: the halt condition is NaN"):
        assert torch.equal(graph(X), 2 * X)
    assert torch.equal(graph(X), 2 * X)


@pytest.mark.parametrize("mode", ["auto", "masked"])
def test_condition_of_another_type_is_refused(mode):
    with pytest.raises(NodeError, match="condition returned str\nhint: a condition returns"):
        loop(double, "while_cond", lambda s: "no", 3, mode=mode)(X)


def test_body_must_keep_the_shape_when_masked():
    with pytest.raises(NodeError, match=r"shape \[1, 4\] of \[1, 2\]"):
        loop(lambda x: x.repeat(1, 2), "while_cond", lambda s: -1, 3, mode="masked")(X)


def test_row_conditions_need_a_value_a_row():
    graph = loop(double, "while_cond", lambda s: s.sum(), 3, mode="masked", halt="sample")
    with pytest.raises(NodeError, match=r"shape \[\] for 1 rows"):
        graph(X)


def test_references_go_to_the_body_in_every_iteration():
    flow = FlowBuilder().tag("start").loop_body(StateAdd()).for_n(3).using("start")
    assert torch.equal(flow.build()(X), 4 * X)
    flow = FlowBuilder().loop_body(StateAdd()).for_n(2).using("memory").tag("memory")
    graph = flow.build()
    assert torch.equal(graph(X), X)
    assert torch.equal(graph(X), 3 * X)


def test_state_of_the_body_begins_anew_with_each_loop():
    class Counting(LoopBody):
        def __init__(self):
            super().__init__()
            self.count = 0

        def step(self, x, refs, emit):
            self.count += 1
            return x + self.count

        def reset(self):
            self.count = 0

    class Innocent(nn.Module):
        def forward(self, x):
            return x

        def reset(self):
            raise AssertionError("it did not ask for this")

    graph = loop(nn.Sequential(Innocent(), Counting()), "for_n", 2)
    assert torch.equal(graph(X), X + 3)
    assert torch.equal(graph(X), X + 3)
    memory = FlowBuilder(StateAdd()).using("m").tag("m").build()
    graph = loop(memory, "for_n", 3)
    assert torch.equal(graph(X), graph(X))


def test_replaced_body_is_reset_too():
    graph = loop(nn.Identity(), "for_n", 2)
    memory = FlowBuilder(StateAdd()).using("m").tag("m").build()
    graph.set_submodule("loop.body", memory)
    assert torch.equal(graph(X), graph(X))


def test_failing_iteration_is_named():
    calls = []

    def third_fails(x):
        calls.append(0)
        if len(calls) == 3:
            raise ValueError("no")
        return x

    with pytest.raises(ValueError, match="no") as caught:
        loop(third_fails, "for_n", 5)(X)
    assert "node loop_1 #loop (iteration 2): " in caught.value.__notes__[0]


def test_learned_halt_that_cannot_learn_is_pointed_out(caplog):
    caplog.set_level("INFO", "flodl")
    loop(nn.Identity(), "until_cond", LearnedHalt(2), 3)
    assert 'until_cond(…, mode="act") trains it' in caplog.text


def test_side_effects_of_dead_iterations_are_warned_of():
    body = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
    flow = FlowBuilder().loop_body(body).while_cond(lambda s: -1, 3, mode="masked")
    with pytest.warns(FlowWarning) as caught:
        flow.build()
    assert [str(item.message).split(" in the body")[0] for item in caught] == [
        "loop_1: BatchNorm1d",
        "loop_1: Dropout",
    ]


def test_body_and_condition_have_keys_of_their_own():
    graph = loop(nn.Linear(2, 2), "until_cond", LearnedHalt(2), 3)
    assert sorted(graph.state_dict()) == [
        "loop.body.bias",
        "loop.body.weight",
        "loop.cond.proj.bias",
        "loop.cond.proj.weight",
    ]


def test_loop_options_are_part_of_the_hash():
    def of(*args, kind="for_n", **options):
        return loop(nn.Identity(), kind, *args, **options).structural_hash

    halt = ThresholdHalt(1.0)
    hashes = [
        of(3),
        of(5),
        of(3, detach_every=1),
        of(halt, 3, kind="while_cond"),
        of(halt, 3, kind="until_cond"),
        of(ThresholdHalt(2.0), 3, kind="until_cond"),
        of(halt, 3, kind="until_cond", mode="masked"),
        of(halt, 3, kind="until_cond", reduce="any"),
        of(halt, 3, kind="until_cond", mode="act"),
        of(halt, 3, kind="until_cond", mode="act", eps=0.1),
    ]
    assert len(set(hashes)) == len(hashes)


def test_body_that_is_a_graph_gets_its_inputs_by_reference():
    inner = FlowBuilder().input("ctx").through(StateAdd()).using("ctx").build()
    flow = FlowBuilder().tag("start").loop_body(inner)
    with pytest.raises(FlowError, match=r"loop_1 body is a graph with inputs 'ctx'.*\n.*ctx='tag'"):
        flow.for_n(2).build()
    inner = FlowBuilder().input("ctx").through(StateAdd()).using("ctx").build()
    graph = FlowBuilder().tag("start").loop_body(inner).for_n(2).using(ctx="start").build()
    assert torch.equal(graph(X), 3 * X)
