"""Random flows against an interpreter that knows nothing of plans, keys or generated code."""

from __future__ import annotations

import copy
import warnings
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from flodl.graph import FlowBuilder, LoopBody
from flodl.nn import FixedSelector, LearnedHalt, Reshape, SoftmaxRouter, StateAdd, ThresholdHalt

WIDTH, BATCH = 4, 3
LEAVES = ("linear", "tanh", "norm", "sequential", "function")


def leaf(kind):
    return {
        "linear": lambda: nn.Linear(WIDTH, WIDTH),
        "tanh": nn.Tanh,
        "norm": lambda: nn.LayerNorm(WIDTH),
        "sequential": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()),
        "function": lambda: torch.sin,
    }[kind]()


class Optional(nn.Module):
    """Adds a reference that may be None."""

    def forward(self, x, ctx=None):
        return x if ctx is None else x + ctx


class Mixing(nn.Module):
    """Takes a reference by keyword or in a dictionary."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, refs):
        (value,) = refs.values()
        return torch.tanh(self.layer(x)) + value.mean(0, keepdim=True)


class Publishing(LoopBody):
    def __init__(self, name):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.name = name

    def step(self, x, refs, emit):
        emit.publish(self.name, x.square().mean())
        return torch.tanh(self.layer(x))


leaves = st.sampled_from(LEAVES)
few = st.integers(1, 3)
index = st.integers(0, 1)
thresholds = st.floats(-1, 2)
earlier = st.integers(0, 9)
loop_modes = st.sampled_from(["auto", "masked", "hop"])
just = st.just


def steps(depth):
    # What may stand for a module: a leaf, or a flow of its own.
    body = leaves if depth == 0 else st.one_of(leaves, flows(depth - 1))
    several = st.lists(body, min_size=2, max_size=3)
    kinds = [
        st.tuples(just("through"), body),
        st.tuples(just("also"), body),
        st.tuples(just("also_with"), leaves, body),
        st.tuples(just("fork"), leaves),
        st.tuples(just("merge"), several, st.sampled_from(["add", "mean", "mul", "max", "list"])),
        st.tuples(just("cat"), leaves, leaves),
        st.tuples(just("named_split"), several, earlier),
        st.tuples(just("for"), body, few, st.booleans()),
        st.tuples(just("for_detached"), leaves, st.integers(2, 4), few),
        st.tuples(just("traced"), few),
        st.tuples(just("referring_loop"), few, earlier),
        st.tuples(just("while"), body, few, thresholds, loop_modes),
        st.tuples(just("until"), body, few, thresholds, loop_modes),
        st.tuples(just("rows_halt"), leaves, few, thresholds, st.sampled_from(["while", "until"])),
        st.tuples(just("act"), leaves, few),
        st.tuples(just("gate"), several, st.one_of(st.none(), earlier)),
        st.tuples(
            just("switch"), several, index, st.sampled_from(["auto", "fixed", "dense", "rows"])
        ),
        st.tuples(just("each"), body, st.booleans()),
        st.tuples(just("over"), leaves, earlier, st.booleans()),
        st.tuples(just("mapped_reference"), earlier),
        st.tuples(just("slices"), st.sampled_from([1, 2, 4]), st.booleans()),
        st.tuples(just("reshape")),
        st.tuples(just("back"), earlier),
        st.tuples(just("state"), st.sampled_from(["zeros", "shape", "call"])),
        st.tuples(just("before")),
        st.tuples(just("keyed"), st.sampled_from(["linear", "tanh"]), st.booleans()),
        st.tuples(just("again"), earlier),
        st.tuples(just("context")),
    ]
    if depth:
        kinds.append(st.tuples(just("with_context"), flows(depth - 1), earlier))
    return st.one_of(kinds)


def flows(depth):
    return st.lists(steps(depth), min_size=1, max_size=6)


class Interpreter:
    """Builds the flow and, beside it, a list of closures that compute the same."""

    def __init__(self, described, *, has_context=False):
        self.functions, self.resets = [], []
        self.cells, self.traces = {}, {}
        self.tags = 0
        self.keys, self.used = [], []
        self.has_context = has_context
        builder = FlowBuilder()
        if has_context:
            builder = builder.input("ctx")
        for step in described:
            builder = getattr(self, f"_{step[0]}")(builder.tag(self._name()), *step[1:])
        self.graph = builder.tag("last").build()

    def _name(self):
        self.tags += 1
        return f"t{self.tags}"

    def run(self, x, ctx=None):
        call = Call(ctx)
        self.traces = {}
        for function in self.functions:
            call.tags.append(x)
            x = function(x, call)
        self.cells.update(call.pending, last=x)
        return x

    def reset(self):
        self.cells = {}
        for reset in self.resets:
            reset()

    def _add(self, function):
        self.functions.append(function)

    def _body(self, described):
        """Return what to give to a builder, a function that does the same, and how to reset it."""
        if isinstance(described, str):
            module = leaf(described)
            self.used.append(module)
            return module, module, lambda: None
        inner = Interpreter(described)
        self.resets.append(inner.reset)
        return inner.graph, inner.run, inner.reset

    def _bodies(self, described):
        pairs = [self._body(item)[:2] for item in described]
        return [module for module, _ in pairs], [function for _, function in pairs]

    def _earlier(self, which):
        return which % self.tags, f"t{which % self.tags + 1}"

    # ------------------------------------------------------------- the stream

    def _through(self, builder, described):
        module, function, _ = self._body(described)
        self._add(lambda x, call: function(x))
        return builder.through(module)

    def _also(self, builder, described):
        module, function, _ = self._body(described)
        self._add(lambda x, call: x + function(x))
        return builder.also(module)

    def _also_with(self, builder, skip_described, main_described):
        (skip, main), (short, long) = self._bodies([skip_described, main_described])
        self._add(lambda x, call: short(x) + long(x))
        return builder.also_with(skip, main)

    def _fork(self, builder, kind):
        self._add(lambda x, call: x)
        return builder.fork(leaf(kind)).tag(f"side{self.tags}")

    def _merge(self, builder, described, op):
        modules, functions = self._bodies(described)

        def merged(x, call):
            values = [function(x) for function in functions]
            total = values[0]
            for value in values[1:]:
                total = {"mul": torch.mul, "max": torch.maximum}.get(op, torch.add)(total, value)
            return total / len(values) if op == "mean" else total

        self._add(merged)
        return builder.split(modules).merge(sum if op == "list" else op)

    def _cat(self, builder, one, two):
        modules, functions = self._bodies([one, two])
        narrow = nn.Linear(2 * WIDTH, WIDTH)
        self._add(lambda x, call: narrow(torch.cat([f(x) for f in functions], dim=1)))
        return builder.split(modules).merge("cat", dim=1).through(narrow)

    def _named_split(self, builder, described, which):
        modules, functions = self._bodies(described)
        names = {f"b{self.tags}_{number}": module for number, module in enumerate(modules)}
        chosen = which % len(modules)

        def added(x, call):
            values = [function(x) for function in functions]
            return sum(values) + values[chosen]

        self._add(added)
        builder = builder.split(names).merge("add").through(StateAdd())
        return builder.using(f"b{self.tags}_{chosen}")

    def _reshape(self, builder):
        self._add(lambda x, call: x.reshape(-1, 2).flip(0).reshape(x.shape[0], WIDTH))
        flipped = builder.through(Reshape(-1, 2)).through(lambda x: x.flip(0))
        return flipped.through(Reshape(-1, WIDTH))

    def _keyed(self, builder, kind, extends):
        module = leaf(kind)
        self._add(lambda x, call: module(x))
        key = f"k{self.tags}"
        if extends and self.keys:
            key = f"{self.keys[-1]}.p{self.tags}"
        self.keys.append(key)
        return builder.through(module, key=key)

    def _again(self, builder, which):
        if not self.used:
            return self._through(builder, "linear")
        module = self.used[which % len(self.used)]
        self._add(lambda x, call: module(x))
        return builder.through(module)

    # ------------------------------------------------------------- loops

    def _loop(self, builder, described, plan):
        """Add a loop; ``plan`` takes the state and a step and returns the last state."""
        module, function, reset = self._body(described)

        def looped(x, call):
            reset()
            return plan(x, function)

        self._add(looped)
        return builder.loop_body(module)

    def _for(self, builder, described, n, remat):
        def plan(x, step):
            for _ in range(n):
                x = step(x)
            return x

        # Computing again would also carry the state of a graph in the body once more.
        remat = remat and isinstance(described, str)
        return self._loop(builder, described, plan).for_n(n, remat=remat)

    def _for_detached(self, builder, kind, n, every):
        def plan(x, step):
            for number in range(n):
                x = step(x.detach() if number and number % every == 0 else x)
            return x

        return self._loop(builder, kind, plan).for_n(n, detach_every=every)

    def _while(self, builder, described, most, threshold, mode):
        def plan(x, step):
            for _ in range(most):
                if x.max() > threshold:
                    break
                x = step(x)
            return x

        loop = self._loop(builder, described, plan)
        return loop.while_cond(ThresholdHalt(threshold), most, mode=mode)

    def _until(self, builder, described, most, threshold, mode):
        def plan(x, step):
            for number in range(most):
                x = step(x)
                if number < most - 1 and x.max() > threshold:
                    break
            return x

        loop = self._loop(builder, described, plan)
        return loop.until_cond(ThresholdHalt(threshold), most, mode=mode)

    def _rows_halt(self, builder, leaf_kind, most, threshold, kind):
        def one_row(x, step):
            for number in range(most):
                if kind == "while" and x[0, 0] > threshold:
                    break
                x = step(x)
                if kind == "until" and number < most - 1 and x[0, 0] > threshold:
                    break
            return x

        def plan(x, step):
            return torch.cat([one_row(row, step) for row in x.split(1)])

        loop = self._loop(builder, leaf_kind, plan)
        finish = loop.while_cond if kind == "while" else loop.until_cond
        return finish(lambda x: x[:, 0] - threshold, most, mode="masked", halt="sample")

    def _act(self, builder, leaf_kind, most):
        halt = LearnedHalt(WIDTH)

        def one_row(x, step):
            spent, out = 0.0, 0.0
            for number in range(most):
                x = step(x)
                chance = torch.sigmoid(halt(x)).reshape(())
                if number == most - 1 or spent + chance >= 0.99:
                    return out + (1 - spent) * x
                spent, out = spent + chance, out + chance * x
            raise AssertionError

        def plan(x, step):
            return torch.cat([one_row(row, step) for row in x.split(1)])

        return self._loop(builder, leaf_kind, plan).until_cond(halt, most, mode="act")

    def _traced(self, builder, n):
        name = f"size{self.tags}"
        body = Publishing(name)

        def looped(x, call):
            self.traces[name] = []
            for _ in range(n):
                self.traces[name].append(x.square().mean())
                x = torch.tanh(body.layer(x))
            return x

        self._add(looped)
        return builder.loop_body(body).for_n(n)

    def _referring_loop(self, builder, n, which):
        number, name = self._earlier(which)
        body = Mixing()

        def looped(x, call):
            for _ in range(n):
                x = body(x, {"r": call.tags[number]})
            return x

        self._add(looped)
        return builder.loop_body(body).for_n(n).using(name)

    # ------------------------------------------------------------- routing and maps

    def _gate(self, builder, described, which):
        experts, functions = self._bodies(described)
        router = SoftmaxRouter(WIDTH, len(experts))
        number, name = self._earlier(which or 0)

        def gated(x, call):
            seen = x if which is None else x + call.tags[number]
            weights = torch.softmax(router.proj(seen), -1)
            return sum(weights[:, k : k + 1] * function(x) for k, function in enumerate(functions))

        self._add(gated)
        flow = builder.gate(router, experts)
        return flow if which is None else flow.using(name)

    def _switch(self, builder, described, index, mode):
        branches, functions = self._bodies(described)

        def rows(x, call):
            outputs = [function(x) for function in functions]
            return torch.stack([outputs[int(row[0] > 0)][i] for i, row in enumerate(x)])

        def dense(x, call):
            return [function(x) for function in functions][index]

        if mode == "rows":
            self._add(rows)
            return builder.switch(lambda x: (x[:, 0] > 0).long(), branches, per_sample=True)
        if mode == "dense":
            self._add(dense)
            return builder.switch(lambda x: torch.tensor(index), branches, mode="dense")
        self._add(lambda x, call: functions[index](x))
        selector = FixedSelector(index) if mode == "fixed" else lambda x: torch.tensor(index)
        return builder.switch(selector, branches)

    def _each(self, builder, described, batched):
        module, function, _ = self._body(described)

        def mapped(x, call):
            return function(x) if batched else torch.cat([function(row) for row in x.split(1)])

        self._add(mapped)
        flow = builder.map(module)
        return (flow.batched() if batched else flow).each()

    def _over(self, builder, kind, which, batched):
        number, name = self._earlier(which)
        module, function, _ = self._body(kind)
        self._add(lambda x, call: torch.cat([function(row) for row in call.tags[number].split(1)]))
        flow = builder.map(module)
        return (flow.batched() if batched else flow).over(name)

    def _mapped_reference(self, builder, which):
        number, name = self._earlier(which)
        body = Mixing()

        def mapped(x, call):
            return torch.cat([body(row, {"r": call.tags[number]}) for row in x.split(1)])

        self._add(mapped)
        return builder.map(body).each().using(name)

    def _slices(self, builder, n, batched):
        body = nn.Linear(WIDTH // n, WIDTH // n)
        self._add(lambda x, call: torch.cat([body(part) for part in x.chunk(n, dim=-1)], dim=-1))
        mapped = builder.map(body)
        return (mapped.batched() if batched else mapped).slices(n)

    # ------------------------------------------------------------- references and state

    def _back(self, builder, which):
        number, name = self._earlier(which)
        self._add(lambda x, call: x + call.tags[number])
        return builder.through(StateAdd()).using(name)

    def _state(self, builder, start):
        name = f"state{self.tags}"
        ramp = torch.linspace(0, 1, WIDTH)
        begin = {"zeros": torch.zeros_like, "shape": torch.zeros_like, "call": ramp.expand_as}

        def remembering(x, call):
            call.pending[name] = x + self.cells.get(name, begin[start](x))
            return call.pending[name]

        self._add(remembering)
        flow = builder.through(StateAdd()).using(name).tag(name)
        if start == "zeros":
            return flow
        return flow.state(name, (-1, WIDTH) if start == "shape" else begin[start])

    def _before(self, builder):
        self._add(lambda x, call: x + self.cells.get("last", torch.zeros_like(x)))
        return builder.through(StateAdd()).using("last")

    def _context(self, builder):
        if not self.has_context:
            return self._through(builder, "tanh")
        self._add(lambda x, call: x if call.ctx is None else x + call.ctx)
        return builder.through(Optional()).using("ctx")

    def _with_context(self, builder, described, which):
        number, name = self._earlier(which)
        inner = Interpreter(described, has_context=True)
        self.resets.append(inner.reset)
        self._add(lambda x, call: inner.run(x, call.tags[number]))
        return builder.through(inner.graph).using(ctx=name)


class Call:
    """What one call of an interpreter has seen."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.tags, self.pending = [], {}


def built(described, seed):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Interpreter(described, has_context=True)


def check(described, seed):
    by_hand = built(described, seed)
    graph = by_hand.graph
    inputs = [torch.randn(BATCH, WIDTH, requires_grad=True) for _ in range(3)]
    contexts = [None, torch.randn(BATCH, WIDTH, requires_grad=True), None]
    # Even when every gradient is cut there is something to differentiate.
    ours, theirs = 0 * inputs[0].sum(), 0 * inputs[0].sum()
    for x, ctx in zip(inputs, contexts, strict=True):
        ours = ours + graph(x, ctx).square().mean()
        theirs = theirs + by_hand.run(x, ctx).square().mean()
        for name, values in by_hand.traces.items():
            assert torch.allclose(torch.stack(graph.traces(name)), torch.stack(values), atol=1e-4)
            ours, theirs = ours + sum(graph.traces(name)), theirs + sum(values)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    wanted = [*inputs, contexts[1], *graph.parameters()]
    one = torch.autograd.grad(ours, wanted, allow_unused=True)
    two = torch.autograd.grad(theirs, wanted, allow_unused=True)
    scale = max([1.0, *(float(item.abs().max()) for item in two if item is not None)])
    for a, b in zip(one, two, strict=True):
        zero = torch.zeros(())
        # A branch that runs without counting has gradient zero, one that does not run has none.
        assert torch.allclose(
            zero if a is None else a, zero if b is None else b, rtol=1e-3, atol=1e-4 * scale
        )
    copied = copy.deepcopy(graph)
    assert torch.equal(copied(inputs[0], None), graph(inputs[0], None))


LIMITS = dict(deadline=None, derandomize=True, database=None)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=500, suppress_health_check=SLOW, **LIMITS)
@given(flows(1), st.integers(0, 2**31))
def test_random_flows_compute_what_the_interpreter_does(described, seed):
    check(described, seed)


@settings(max_examples=40, suppress_health_check=SLOW, **LIMITS)
@given(flows(1), st.integers(0, 2**31))
def test_random_flows_can_be_drawn_and_listed(described, seed):
    graph = built(described, seed).graph
    for expand in (0, 3):
        ElementTree.fromstring(graph.svg(engine="builtin", expand=expand))
    rows = graph.summary((torch.ones(BATCH, WIDTH), None), depth=3).rows
    assert all(row.output != "?" for row in rows if not row.id.startswith(" "))
    assert built(described, seed).graph.structural_hash == graph.structural_hash


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=1000, suppress_health_check=SLOW, **LIMITS)
@given(flows(2), st.integers(0, 2**31))
def test_many_random_flows(described, seed):
    check(described, seed)
