"""Random flows against an interpreter that knows nothing of plans, keys or generated code."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import FixedSelector, SoftmaxRouter, StateAdd, ThresholdHalt

WIDTH = 4
LEAVES = ("linear", "tanh", "norm", "sequential")


def leaf(kind):
    return {
        "linear": lambda: nn.Linear(WIDTH, WIDTH),
        "tanh": nn.Tanh,
        "norm": lambda: nn.LayerNorm(WIDTH),
        "sequential": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()),
    }[kind]()


leaves = st.sampled_from(LEAVES)
several = st.lists(leaves, min_size=2, max_size=3)
few = st.integers(1, 3)


def steps(depth):
    simple = [
        st.tuples(st.just("through"), leaves),
        st.tuples(st.just("also"), leaves),
        st.tuples(st.just("also_with"), leaves, leaves),
        st.tuples(st.just("fork"), leaves),
        st.tuples(st.just("merge"), several, st.sampled_from(["add", "mean", "mul", "max"])),
        st.tuples(st.just("for"), leaves, few),
        st.tuples(
            st.just("while"), leaves, few, st.floats(-1, 2), st.sampled_from(["auto", "masked"])
        ),
        st.tuples(
            st.just("until"), leaves, few, st.floats(-1, 2), st.sampled_from(["auto", "masked"])
        ),
        st.tuples(st.just("gate"), several),
        st.tuples(
            st.just("switch"),
            several,
            st.integers(0, 1),
            st.sampled_from(["fixed", "dense", "rows"]),
        ),
        st.tuples(st.just("each"), leaves, st.booleans()),
        st.tuples(st.just("slices"), st.sampled_from([1, 2, 4]), st.booleans()),
        st.tuples(st.just("back"), st.integers(0, 9)),
        st.just(("state",)),
    ]
    if depth:
        simple.append(st.tuples(st.just("nested"), flows(depth - 1)))
    return st.one_of(simple)


def flows(depth):
    return st.lists(steps(depth), min_size=1, max_size=6)


class Interpreter:
    """Builds the flow and, beside it, a list of closures that compute the same."""

    def __init__(self, described):
        self.functions = []
        self.cells = {}
        self.tags = 0
        builder = FlowBuilder()
        for step in described:
            builder = getattr(self, f"_{step[0]}")(builder.tag(self._name()), *step[1:])
        self.graph = builder.tag("last").build()

    def _name(self):
        self.tags += 1
        return f"t{self.tags}"

    def run(self, x):
        tags, pending = [], {}
        for function in self.functions:
            tags.append(x)
            x = function(x, tags, pending)
        self.cells.update(pending)
        return x

    def _add(self, function):
        self.functions.append(function)

    def _through(self, builder, kind):
        module = leaf(kind)
        self._add(lambda x, tags, pending: module(x))
        return builder.through(module)

    def _also(self, builder, kind):
        module = leaf(kind)
        self._add(lambda x, tags, pending: x + module(x))
        return builder.also(module)

    def _also_with(self, builder, skip_kind, main_kind):
        skip, main = leaf(skip_kind), leaf(main_kind)
        self._add(lambda x, tags, pending: skip(x) + main(x))
        return builder.also_with(skip, main)

    def _fork(self, builder, kind):
        self._add(lambda x, tags, pending: x)
        return builder.fork(leaf(kind)).tag(f"side{self.tags}")

    def _merge(self, builder, kinds, op):
        modules = [leaf(kind) for kind in kinds]

        def merged(x, tags, pending):
            total = modules[0](x)
            for module in modules[1:]:
                value = module(x)
                total = {
                    "add": lambda a, b: a + b,
                    "mean": lambda a, b: a + b,
                    "mul": lambda a, b: a * b,
                    "max": torch.maximum,
                }[op](total, value)
            return total / len(modules) if op == "mean" else total

        self._add(merged)
        return builder.split(modules).merge(op)

    def _for(self, builder, kind, n):
        body = leaf(kind)

        def looped(x, tags, pending):
            for _ in range(n):
                x = body(x)
            return x

        self._add(looped)
        return builder.loop_body(body).for_n(n)

    def _while(self, builder, kind, most, threshold, mode):
        body = leaf(kind)

        def looped(x, tags, pending):
            for _ in range(most):
                if x.max() > threshold:
                    break
                x = body(x)
            return x

        self._add(looped)
        return builder.loop_body(body).while_cond(ThresholdHalt(threshold), most, mode=mode)

    def _until(self, builder, kind, most, threshold, mode):
        body = leaf(kind)

        def looped(x, tags, pending):
            for step in range(most):
                x = body(x)
                if step < most - 1 and x.max() > threshold:
                    break
            return x

        self._add(looped)
        return builder.loop_body(body).until_cond(ThresholdHalt(threshold), most, mode=mode)

    def _gate(self, builder, kinds):
        experts = [leaf(kind) for kind in kinds]
        router = SoftmaxRouter(WIDTH, len(experts))

        def gated(x, tags, pending):
            weights = torch.softmax(router.proj(x), -1)
            return sum(weights[:, k : k + 1] * expert(x) for k, expert in enumerate(experts))

        self._add(gated)
        return builder.gate(router, experts)

    def _switch(self, builder, kinds, index, mode):
        branches = [leaf(kind) for kind in kinds]
        if mode == "rows":
            self._add(
                lambda x, tags, pending: torch.stack(
                    [branches[int(row[0] > 0)](x)[i] for i, row in enumerate(x)]
                )
            )
            chosen = lambda x: (x[:, 0] > 0).long()  # noqa: E731
            return builder.switch(chosen, branches, per_sample=True)
        self._add(lambda x, tags, pending: branches[index](x))
        if mode == "fixed":
            return builder.switch(FixedSelector(index), branches)
        return builder.switch(lambda x: torch.tensor(index), branches, mode="dense")

    def _each(self, builder, kind, batched):
        body = leaf(kind)
        self._add(lambda x, tags, pending: torch.cat([body(row[None]) for row in x]))
        mapped = builder.map(body)
        return (mapped.batched() if batched else mapped).each()

    def _slices(self, builder, n, batched):
        body = nn.Linear(WIDTH // n, WIDTH // n)
        self._add(
            lambda x, tags, pending: torch.cat([body(part) for part in x.chunk(n, dim=-1)], dim=-1)
        )
        mapped = builder.map(body)
        return (mapped.batched() if batched else mapped).slices(n)

    def _back(self, builder, which):
        number = which % self.tags
        self._add(lambda x, tags, pending: x + tags[number])
        return builder.through(StateAdd()).using(f"t{number + 1}")

    def _state(self, builder):
        name = f"state{self.tags}"

        def remembering(x, tags, pending):
            pending[name] = x + self.cells.get(name, torch.zeros_like(x))
            return pending[name]

        self._add(remembering)
        return builder.through(StateAdd()).using(name).tag(name)

    def _nested(self, builder, described):
        inner = Interpreter(described)
        self._add(lambda x, tags, pending: inner.run(x))
        return builder.through(inner.graph)


def check(described, seed):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = Interpreter(described)
    graph = built.graph
    inputs = [torch.randn(3, WIDTH, requires_grad=True) for _ in range(2)]
    ours = sum(graph(x).square().sum() for x in inputs)
    theirs = sum(built.run(x).square().sum() for x in inputs)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    wanted = [*inputs, *graph.parameters()]
    one = torch.autograd.grad(ours, wanted, allow_unused=True)
    two = torch.autograd.grad(theirs, wanted, allow_unused=True)
    for a, b in zip(one, two, strict=True):
        zero = torch.zeros(())
        # A branch that runs without counting has gradient zero, one that does not run has none.
        assert torch.allclose(
            zero if a is None else a, zero if b is None else b, rtol=1e-3, atol=1e-4
        )


LIMITS = dict(deadline=None, derandomize=True, database=None)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=500, suppress_health_check=SLOW, **LIMITS)
@given(flows(1), st.integers(0, 2**31))
def test_random_flows_compute_what_the_interpreter_does(described, seed):
    check(described, seed)


@pytest.mark.slow
@settings(max_examples=5000, suppress_health_check=SLOW, **LIMITS)
@given(flows(2), st.integers(0, 2**31))
def test_many_random_flows(described, seed):
    check(described, seed)
