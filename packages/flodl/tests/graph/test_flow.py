"""Each construct against a hand-written module, values and gradients bit for bit."""

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError, FlowWarning, MergeOp
from flodl.nn import StateAdd


def linear(seed, inputs=4, outputs=4):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs)


def assert_same(graph, reference, modules, *inputs):
    """Compare values and gradients of ``graph`` with a function of the same modules."""
    inputs = [value.clone().requires_grad_() for value in inputs]
    outcomes = []
    for function in (graph, reference):
        for parameter in (*inputs, *(p for m in modules for p in m.parameters())):
            parameter.grad = None
        output = function(*inputs)
        (output * torch.linspace(-1, 2, output.numel()).reshape(output.shape)).sum().backward()
        gradients = [p.grad for p in (*inputs, *(p for m in modules for p in m.parameters()))]
        outcomes.append([output.detach(), *gradients])
    for ours, theirs in zip(*outcomes, strict=True):
        assert torch.equal(ours, theirs)


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))


def test_chain():
    a, b = linear(0), linear(1, 4, 2)
    graph = FlowBuilder(a).through(nn.GELU(), nn.LayerNorm(4)).through(b).build()
    norm = graph.get_submodule("layernorm_3")
    assert_same(graph, lambda x: b(norm(nn.functional.gelu(a(x)))), [a, b, norm], X)


def test_also_adds_the_stream_first():
    a = linear(0)
    assert_same(FlowBuilder().also(a).build(), lambda x: x + a(x), [a], X)


def test_also_with_adds_the_skip_first():
    skip, main = linear(0), linear(1)
    graph = FlowBuilder().also_with(skip, main).build()
    assert_same(graph, lambda x: skip(x) + main(x), [skip, main], X)


def test_fork_leaves_the_stream_and_names_the_side():
    side, a = linear(0), linear(1)
    graph = FlowBuilder().fork(side).tag("side").through(a).build()
    assert_same(graph, a, [a], X)
    graph(X)
    assert torch.equal(graph.tagged("side"), side(X))


def test_fork_that_is_followed_by_a_step_gives_its_tag_away():
    side, a = linear(0), linear(1)
    with pytest.warns(FlowWarning, match="linear_1 is computed but never used"):
        graph = FlowBuilder().fork(side).through(a).tag("t").build()
    graph(X)
    assert torch.equal(graph.tagged("t"), a(X))


def test_dead_node_warning_points_at_the_build_call():
    with pytest.warns(FlowWarning) as caught:
        FlowBuilder().fork(linear(0)).build()
    assert caught[0].filename == __file__


REFERENCES = {
    "add": lambda a, b, c: a + b + c,
    "mean": lambda a, b, c: (a + b + c) / 3,
    "mul": lambda a, b, c: a * b * c,
    "max": lambda a, b, c: torch.maximum(torch.maximum(a, b), c),
    "cat": lambda a, b, c: torch.cat([a, b, c], dim=-1),
    "stack": lambda a, b, c: torch.stack([a, b, c], dim=1),
}


@pytest.mark.parametrize("op", REFERENCES)
def test_split_and_merge(op):
    branches = [linear(seed) for seed in range(3)]
    dim = {"cat": -1, "stack": 1}.get(op)
    graph = FlowBuilder().split(branches).merge(op, dim=dim).build()
    assert_same(graph, lambda x: REFERENCES[op](*(m(x) for m in branches)), branches, X)
    assert graph.code == FlowBuilder().split(branches).merge(MergeOp(op), dim=dim).build().code


def test_merge_takes_a_function_or_module_of_the_list():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, values):
            return self.scale * values[-1]

    branches, last = [linear(0), linear(1)], Last()
    graph = FlowBuilder().split(branches).merge(lambda values: values[0] - values[1]).build()
    assert_same(graph, lambda x: branches[0](x) - branches[1](x), branches, X)
    graph = FlowBuilder().split([linear(0), branches[1]]).merge(last).tag("end").build()
    assert torch.equal(graph(X), 2.0 * branches[1](X))
    assert "end.scale" in graph.state_dict()


def test_split_of_a_mapping_tags_the_branches():
    branches = {"left": linear(0), "right": linear(1)}
    graph = FlowBuilder().split(branches).merge().build()
    graph(X)
    assert graph.tag_names == ("left", "right")
    assert torch.equal(graph.tagged("right"), branches["right"](X))
    assert "left.weight" in graph.state_dict()


def test_tag_group_numbers_the_streams():
    graph = FlowBuilder().split([linear(0), linear(1)]).tag_group("head").merge().build()
    assert graph.tag_names == ("head_0", "head_1")
    assert "head_1.bias" in graph.state_dict()


def test_out_picks_from_modules_that_return_several_values():
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 4, batch_first=True)
    x = torch.randn(2, 5, 4)
    assert torch.equal(FlowBuilder(lstm, out=0).build()(x), lstm(x)[0])
    pair = FlowBuilder().through(lambda x: {"a": x, "b": 2 * x}, out="b").build()
    assert torch.equal(pair(x), 2 * x)


def test_named_outputs_come_as_a_dictionary_in_their_order():
    a, b = linear(0), linear(1)
    graph = FlowBuilder(a).tag("a").through(b).tag("b").output("b", "a").build()
    result = graph(X)
    assert list(result) == ["b", "a"] == list(graph.output_names)
    assert torch.equal(result["b"], b(a(X)))


def test_named_outputs_may_leave_streams_open():
    graph = FlowBuilder().split({"a": linear(0), "b": linear(1)}).output("a", "b").build()
    assert graph(X).keys() == {"a", "b"}


def test_plain_functions_are_steps():
    graph = FlowBuilder(torch.relu).through(lambda x: x + 1).build()
    assert torch.equal(graph(X), torch.relu(X) + 1)
    assert [node.id for node in graph.nodes[1:]] == ["relu_1", "lambda_2"]


def test_sequential_keeps_its_parameter_names():
    torch.manual_seed(0)
    modules = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    graph = FlowBuilder.from_sequential(modules).build()
    assert list(graph.state_dict()) == list(modules.state_dict())
    assert torch.equal(graph(X), modules(X))


def test_copy_branches_with_shared_weights():
    a = linear(0)
    trunk = FlowBuilder(a).tag("trunk")
    first = trunk.copy().through(linear(1)).build()
    second = trunk.through(linear(2)).build()
    assert first.get_submodule("trunk") is second.get_submodule("trunk") is a


class TakesRefs(nn.Module):
    def forward(self, x, refs=None):
        return x * refs["ctx"]


class TakesKeyword(nn.Module):
    def forward(self, x, *, ctx):
        return x * ctx


class TakesAny(nn.Module):
    def forward(self, x, **refs):
        return x * refs["ctx"]


class TakesNamed(nn.Module):
    def forward(self, x):
        raise AssertionError("the references are lost here")

    def forward_named(self, x, refs):
        return x * refs["ctx"]


class OffersNamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = TakesNamed()

    def forward(self, x):
        raise AssertionError("the references are lost here")

    def as_named_input(self):
        return self.inner


def product_graph():
    return (
        FlowBuilder(TakesKeyword(), input_name="stream").input("other").using(ctx="other").build()
    )


@pytest.mark.parametrize(
    ("module", "rename"),
    [
        (TakesRefs, "ctx"),
        (TakesKeyword, "ctx"),
        (TakesAny, "ctx"),
        (TakesNamed, "ctx"),
        (OffersNamed, "ctx"),
        (product_graph, "other"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_backward_reference_in_every_calling_style(module, rename):
    a, b = linear(0), linear(1)
    graph = (
        FlowBuilder(a).tag("early").through(b).through(module()).using(**{rename: "early"}).build()
    )

    def reference(x):
        early = a(x)
        return b(early) * early

    assert_same(graph, reference, [a, b], X)


@pytest.mark.parametrize("module", [TakesRefs, TakesKeyword])
def test_hooks_run_where_the_module_is_called(module):
    seen = []
    step = module()
    step.register_forward_hook(lambda *_: seen.append(1))
    FlowBuilder().tag("ctx").through(step).using("ctx").build()(X)
    assert seen == [1]


def test_several_references_reach_one_step():
    graph = FlowBuilder().tag("a").through(lambda x: 2 * x).tag("b")
    graph = graph.through(StateAdd()).using("a").using("b").build()
    assert torch.equal(graph(X), 2 * X + X + 2 * X)


def test_references_of_a_split_go_to_every_branch():
    graph = FlowBuilder().tag("a").split([StateAdd(), StateAdd()]).using("a").merge().build()
    assert torch.equal(graph(X), 4 * X)


def test_auxiliary_inputs_are_tags():
    a = linear(0)
    graph = FlowBuilder(a).input("ctx").through(TakesKeyword()).using("ctx").build()
    assert graph.input_names == ("input", "ctx")
    assert torch.equal(graph(X, ctx=X), a(X) * X)
    assert torch.equal(graph(X, X), graph(ctx=X, input=X))


def test_auxiliary_input_may_be_none():
    graph = FlowBuilder(lambda x, mask: x if mask is None else x * mask).input("mask").using("mask")
    graph = graph.build()
    assert torch.equal(graph(X, None), X)


def test_nested_graphs_compute_the_same():
    a, b = linear(0), linear(1)
    inner = FlowBuilder(a).through(torch.tanh).label("inner").build()
    graph = FlowBuilder(inner).also(b).build()
    assert_same(graph, lambda x: (h := torch.tanh(a(x))) + b(h), [a, b], X)
    assert next(iter(graph.state_dict())) == "inner.linear_1.weight"


def test_one_module_at_two_nodes_is_registered_once():
    a = linear(0)
    graph = FlowBuilder(a).tag("first").through(torch.tanh).through(a).tag("second").build()
    assert list(graph.state_dict()) == ["first.weight", "first.bias"]
    assert_same(graph, lambda x: a(torch.tanh(a(x))), [a], X)


def test_long_flow_builds_quickly_enough_to_be_used():
    builder = FlowBuilder()
    for index in range(500):
        builder = builder.through(nn.Identity()).tag(f"t{index}")
    graph = builder.build()
    assert torch.equal(graph(X), X)
    assert len(graph.nodes) == 501


# ------------------------------------------------------------------ misuse


def cases():
    start, two = FlowBuilder, lambda: FlowBuilder().split([linear(0), linear(1)])
    nested = FlowBuilder(linear(0)).tag("y").output("y").build
    needs_ctx = product_graph
    return {
        "class": (lambda: start(nn.Linear), r"FlowBuilder: Linear is a class"),
        "value": (lambda: start().through(3), r"through: 3 \(int\) is no module"),
        "list": (lambda: start().through([linear(0)]), r"through: .*list.*is no module"),
        "builder": (lambda: start(start()), r"not built\nhint: call \.build\(\)"),
        "nothing": (lambda: start().through(), r"through\(\) needs a module"),
        "key of two": (lambda: start().through(linear(0), linear(1), key="k"), "one module, 2"),
        "bad key": (lambda: start().through(linear(0), key="a..b"), r"'a\.\.b' is no legal key"),
        "key alone": (lambda: start(key="a"), "need a module"),
        "through": (
            lambda: two().through(linear(0)),
            r"through needs a single stream, 2.*\n.*merge",
        ),
        "also": (lambda: two().also(linear(0)), "also needs a single stream"),
        "also_with": (lambda: two().also_with(linear(0), linear(1)), "also_with needs a single"),
        "fork": (lambda: two().fork(linear(0)), "fork needs a single stream"),
        "split": (lambda: two().split([linear(0), linear(1)]), "split needs a single stream"),
        "one branch": (lambda: start().split([linear(0)]), "two branches or more, got 1"),
        "merge one": (lambda: start().merge(), "two streams or more, one is open"),
        "merge op": (lambda: two().merge("sum"), "no such operation; there are add, mean"),
        "merge dim": (lambda: two().merge("add", dim=1), "works element by element"),
        "merge no dim": (lambda: two().merge("cat"), "needs a dimension"),
        "merge fn dim": (lambda: two().merge(sum, dim=1), "belongs to cat and stack"),
        "tag two": (lambda: two().tag("a"), r"2 streams are open\n.*tag_group"),
        "tag twice": (lambda: start().tag("a").tag("a"), "already a tag 'a'"),
        "tag group": (lambda: two().tag_group("a").merge().tag("a"), "already a group 'a'"),
        "tag input": (lambda: start().input("a").tag("a"), "already a tag 'a'"),
        "dot": (lambda: start().tag("a.b"), r"'a\.b' is no legal name"),
        "digit": (lambda: start().tag("1a"), "no legal name"),
        "unicode": (lambda: start().tag("ä"), "no legal name"),
        "no name": (lambda: start().tag(None), "no legal name"),
        "group of one": (lambda: start().tag_group("a"), "two streams or more"),
        "group clash": (lambda: two().tag_group("a").tag_group("a"), "taken"),
        "group member": (
            lambda: start().tag("a_0").split([linear(0), linear(1)]).tag_group("a"),
            "already a tag 'a_0'",
        ),
        "label": (lambda: start().label("a.b"), r"label\('a\.b'\): 'a\.b' is no legal name"),
        "keyword": (lambda: start(input_name="class"), "cannot be passed by name"),
        "self": (lambda: start().input("self"), "cannot be passed by name"),
        "input twice": (lambda: start().input("a", "a"), "already an input of that name"),
        "input entry": (lambda: start().input("input"), "already an input of that name"),
        "input late": (
            lambda: start(StateAdd()).using("a").input("a"),
            "already a reference before it",
        ),
        "output": (lambda: start().tag("alpha").output("alpa"), "did you mean 'alpha'"),
        "output empty": (lambda: start().output(), "needs tags"),
        "using nothing": (lambda: start(StateAdd()).using(), "needs a name"),
        "using merge": (lambda: two().merge().using("a"), "a merge or the bare input"),
        "using start": (lambda: start().using("a"), "no step here takes references"),
        "using deaf": (
            lambda: start().tag("a").through(linear(0)).using("a"),
            r"linear_1 \(Linear\) takes no reference 'a'\nhint: .*refs.*forward_named",
        ),
        "using stream": (
            lambda: start().tag("x").through(TakesKeyword()).using("x"),
            "takes no reference 'x'",
        ),
        "using twice": (
            lambda: start().tag("a").through(StateAdd()).using("a", "a"),
            "already has a reference 'a'",
        ),
        "using graph": (
            lambda: start().tag("a").through(needs_ctx()).using("a"),
            "without an auxiliary input 'a'; it has: other",
        ),
        "named outputs": (lambda: start(nested()), r"dictionary of y.*\n.*out='y'"),
        "state twice": (lambda: start().state("a", (1,)).state("a", (1,)), "already has a start"),
        "unbound": (lambda: start(needs_ctx()).build(), r"inputs 'other' that nothing"),
        "open": (lambda: two().build(), "build needs a single stream, 2 are open"),
        "unresolved": (
            lambda: start(StateAdd()).using("a", "b").tag("c").build(),
            "using\\('a', 'b'\\): no such tag; tags: c",
        ),
        "state unused": (lambda: start().state("a", (1,)).build(), "no forward reference"),
        "internal": (lambda: start().internal("a").build(), "no such tag"),
        "same keys": (
            lambda: start().through(linear(0), key="a").through(linear(1)).tag("a").build(),
            "linear_1 and linear_2 both have the key 'a'",
        ),
    }


@pytest.mark.parametrize("case", cases())
def test_misuse_is_refused_where_it_happens(case):
    function, words = cases()[case]
    with pytest.raises(FlowError, match=words):
        function()


def test_failed_call_leaves_the_builder_usable():
    builder = FlowBuilder(linear(0))
    with pytest.raises(FlowError):
        builder.through(nn.Linear)
    assert torch.equal(builder.build()(X), linear(0)(X))


def test_entry_argument_and_a_tag_may_share_a_name():
    graph = FlowBuilder().through(torch.neg).tag("input").build()
    graph(X)
    assert torch.equal(graph.tagged("input"), -X)


def test_internal_tags_are_marked():
    graph = FlowBuilder().tag("_a").tag("b").tag("_c").internal("b").internal("_c", False).build()
    assert {tag.name: tag.internal for tag in graph.flodl_plan.tags} == {
        "_a": True,
        "b": True,
        "_c": False,
    }
