import linecache
import statistics
import time

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import StateAdd

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def mixed():
    torch.manual_seed(0)
    builder = FlowBuilder(nn.Linear(4, 4)).tag("encoded").input("ctx").through(nn.GELU())
    builder = builder.split([nn.Linear(4, 4), nn.Linear(4, 4)]).merge("mean")
    return builder.through(StateAdd()).using("ctx", "memory").tag("memory").build()


def test_code_is_one_readable_statement_a_node():
    assert mixed().code == (
        "def flow(self, input, ctx, memory_before):\n"
        "    m = self._modules\n"
        "    linear_1 = m['encoded'](input)\n"
        "    del input\n"
        "    gelu_3 = m['gelu_3'](linear_1)\n"
        "    linear_4 = m['linear_4'](gelu_3)\n"
        "    linear_5 = m['linear_5'](gelu_3)\n"
        "    del gelu_3\n"
        "    merge_6 = (linear_4 + linear_5) / 2\n"
        "    del linear_4, linear_5\n"
        "    state_read_memory_8 = _read(memory_before, merge_6, 'memory')\n"
        "    stateadd_7 = m['memory'](merge_6, refs={'ctx': ctx, 'memory': state_read_memory_8})\n"
        "    del merge_6, state_read_memory_8\n"
        "    return stateadd_7, (linear_1, ctx, stateadd_7), (stateadd_7,), ()\n"
    )


def test_source_is_there_for_tracebacks():
    graph = mixed()
    name = graph.flodl_flow.code.co_filename
    linecache.checkcache()
    assert linecache.getline(name, 3) == "    linear_1 = m['encoded'](input)\n"


def test_only_retained_tags_are_returned():
    graph = mixed()
    graph.set_retained(["memory"])
    assert "return stateadd_7, (stateadd_7,), (stateadd_7,)" in graph.code
    graph.set_retained("none")
    assert "return stateadd_7, (), (stateadd_7,)" in graph.code


@pytest.mark.parametrize(
    "name",
    "m flow _read in1 identity_2 a_before x_o1 range len print".split(),
)
def test_argument_names_never_clash_with_the_code(name):
    builder = FlowBuilder(input_name=name).through(nn.Identity()).through(nn.Identity())
    graph = builder.input("in0").through(StateAdd()).using("in0").tag("a")
    graph = graph.through(StateAdd()).using("a").build()
    ones = torch.ones_like(X)
    assert torch.equal(graph(X, ones), 2 * (X + ones))
    assert torch.equal(graph(**{name: X, "in0": ones}), 2 * (X + ones))


def test_names_of_steps_never_clash_with_the_code():
    class Odd(nn.Identity):
        pass

    for name in ("memory", "input_input", "self", "m", "state_read_memory", "identity_o1"):
        step = Odd()
        step.flodl_name = name
        graph = FlowBuilder(step).through(StateAdd()).using("memory").tag("memory").build()
        graph(X)
        assert torch.equal(graph(X), 2 * X)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_static_flow_compiles_whole(backend):
    torch._dynamo.reset()
    graph, plain = mixed(), mixed()
    compiled = torch.compile(graph, fullgraph=True, backend=backend)
    for _ in range(3):
        x, ctx = torch.randn(2, 3, 4)
        ours, theirs = compiled(x, ctx), plain(x, ctx)
        assert torch.allclose(ours, theirs)
        assert torch.allclose(graph.tagged("memory"), plain.tagged("memory"))
        ours.sum().backward()
        theirs.sum().backward()
        graph.end_step()
        plain.end_step()
    for ours, theirs in zip(graph.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nested_graphs_compile_whole():
    torch._dynamo.reset()
    inner = FlowBuilder(nn.Linear(4, 4)).tag("hidden").label("inner").build()
    graph = FlowBuilder(inner).also(nn.Linear(4, 4)).build()
    expected = graph(X)
    compiled = torch.compile(graph, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(X), expected)
    assert torch.allclose(inner.tagged("hidden"), inner(X))


class Hand(nn.Module):
    """The twenty steps as a user would write them."""

    def __init__(self):
        super().__init__()
        for index in range(20):
            self.add_module(f"step{index}", nn.Identity())

    def forward(self, x):
        x = self.step0(x)
        x = self.step1(x)
        x = self.step2(x)
        x = self.step3(x)
        x = self.step4(x)
        x = self.step5(x)
        x = self.step6(x)
        x = self.step7(x)
        x = self.step8(x)
        x = self.step9(x)
        x = self.step10(x)
        x = self.step11(x)
        x = self.step12(x)
        x = self.step13(x)
        x = self.step14(x)
        x = self.step15(x)
        x = self.step16(x)
        x = self.step17(x)
        x = self.step18(x)
        return self.step19(x)


def test_overhead_over_the_hand_written_forward():
    builder = FlowBuilder()
    for index in range(20):
        builder = builder.through(nn.Identity()).tag(f"tag{index}")
    graph, hand, x = builder.build(), Hand(), torch.ones(2)

    def seconds(module):
        start = time.perf_counter()
        for _ in range(300):
            module(x)
        return time.perf_counter() - start

    ratio = statistics.median(seconds(graph) / seconds(hand) for _ in range(15))
    assert ratio <= 1.1
