import importlib.util
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from flodl.core.errors import ExportError
from flodl.graph import FlowBuilder, GraphPathError
from flodl.nn import ArgmaxSelector, SoftmaxRouter, StateAdd, ThresholdHalt

# The compiler looks at the gradients of values that have none.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def linear():
    return nn.Linear(4, 4)


def stateful():
    inner = FlowBuilder(linear()).through(StateAdd()).using("m").tag("m").label("inner").build()
    return FlowBuilder(inner).through(torch.tanh).tag("y").build()


def switched():
    return FlowBuilder().switch(ArgmaxSelector(4, 3), [linear(), linear(), linear()]).build()


def test_pure_function_takes_and_gives_state_and_leaves_the_graph_alone():
    graph, other = stateful(), stateful()
    other.load_state_dict(graph.state_dict())
    pure = graph.pure()
    state = {}
    for _ in range(3):
        out, state = pure(X, state=state)
        assert torch.equal(out, other(X))
    assert list(state) == ["inner.m"]
    assert graph.get_state() == {}
    assert graph.tagged("y") is None
    with pytest.raises(GraphPathError, match=r"no state 'm'\nhint: known: inner.m"):
        pure(X, state={"m": X})


def test_threads_may_share_a_pure_function():
    graph = stateful()
    pure = graph.pure()

    def run(scale):
        state, outputs = {}, []
        with torch.no_grad():
            for _ in range(5):
                out, state = pure(scale * X, state=state)
                outputs.append(out)
        return torch.stack(outputs)

    alone = [run(scale) for scale in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert all(map(torch.equal, alone, pool.map(run, range(4))))


def test_pure_gradients_reach_the_parameters_of_the_graph():
    graph = stateful()
    out, _ = graph.pure()(X, state={})
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in graph.parameters())


def test_export_of_a_static_graph():
    graph = FlowBuilder(linear()).tag("a").input("ctx").also(linear()).through(StateAdd())
    graph = graph.using("ctx").build()
    program = graph.export((X, X.clone())).module()
    assert torch.equal(program(2 * X, X), graph(2 * X, X))


def test_export_lifts_state():
    graph = stateful()
    program, state = graph.export(X).module(), {"inner.m": torch.zeros(3, 4)}
    for _ in range(2):
        out, state = program(X, state=state)
        assert torch.equal(out, graph(X))


def test_sizes_that_vary_are_given_by_input():
    flow = FlowBuilder(linear()).tag("a").input("ctx").also(linear()).through(StateAdd())
    graph = flow.using("ctx").build()
    batch, other = torch.export.Dim("batch", min=2), torch.randn(7, 4)
    for shapes in ({"input": {0: batch}, "ctx": {0: batch}}, ({0: batch}, {0: batch})):
        program = graph.export((X, X.clone()), dynamic_shapes=shapes).module()
        assert torch.allclose(program(other, other), graph(other, other), atol=1e-6)
    with pytest.raises(ExportError, match=r"'x' is no input\nhint: known: input, ctx"):
        graph.export((X, X), dynamic_shapes={"x": None})
    with pytest.raises(ExportError, match="1 entries for the inputs input, ctx"):
        graph.export((X, X), dynamic_shapes=[{0: batch}])


def test_state_follows_the_size_of_the_batch():
    graph, wide = stateful(), torch.randn(7, 4)
    batch = torch.export.Dim("batch", min=2)
    program, state = graph.export(X, dynamic_shapes=[{0: batch}]).module(), None
    state = {"inner.m": torch.zeros(7, 4)}
    for _ in range(2):
        out, state = program(wide, state=state)
        assert torch.allclose(out, graph(wide), atol=1e-6)


def test_export_follows_switches_and_loops_on_the_device():
    graph = switched()
    program = graph.export(X).module()
    inputs = [torch.randn(3, 4) for _ in range(8)]
    assert all(torch.allclose(program(x), graph(x)) for x in inputs)
    body = nn.Sequential(linear(), nn.Tanh())
    for kind in ("while_cond", "until_cond"):
        graph = getattr(FlowBuilder().loop_body(body), kind)(ThresholdHalt(0.5), 4).build()
        program = graph.export(X).module()
        assert all(torch.allclose(program(x), graph(x)) for x in inputs)


def test_what_cannot_be_exported_names_its_node():
    class Host(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ExportError, match="cannot be exported at node host_1"):
        FlowBuilder(Host()).build().export(X)
    with pytest.raises(ExportError, match="'lambda' in 'lambda' is a keyword of Python"):
        FlowBuilder(linear()).tag("lambda").build().export(X)


def traceable():
    inner = FlowBuilder(linear()).also(linear()).through(StateAdd()).using("m").tag("m")
    pair = lambda: [linear(), linear()]  # noqa: E731
    flow = FlowBuilder(inner.label("inner").build()).tag("a").input("ctx")
    flow = flow.gate(SoftmaxRouter(4, 2), pair()).map(nn.Linear(2, 2)).batched().slices(2)
    flow = flow.loop_body(linear()).for_n(2).through(StateAdd()).using("ctx").split(pair())
    flow = flow.merge("mean").switch(ArgmaxSelector(4, 2), pair(), mode="dense")
    return flow.loop_body(linear()).until_cond(ThresholdHalt(0.2), 3, mode="masked").build()


def test_traced_graph_computes_the_same_with_the_same_modules():
    graph = traceable()
    module, state = graph.to_fx(), {}
    assert isinstance(module, torch.fx.GraphModule)
    for _ in range(3):
        out, state = module(X, X, state)
        expected = graph(X, X)
        assert torch.equal(out, expected)
    assert list(state) == ["a.m"]
    assert module.get_submodule("gate_3.experts.0") is graph.get_submodule("gate_3.experts.0")
    calls = [node.target for node in module.graph.nodes if node.op == "call_module"]
    assert calls.count("loop_5.body") == 2
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    assert names == ["input_1", "ctx", "state"]
    graph.get_submodule("gate_3.experts.0").weight.data.zero_()
    graph.reset_state()
    assert torch.equal(module(X, X, {})[0], graph(X, X))


def test_traced_graph_without_state_takes_its_inputs_alone():
    graph = FlowBuilder(linear()).loop_body(linear()).for_n(2, remat=True).build()
    assert torch.equal(graph.to_fx()(X), graph(X))
    named = FlowBuilder(linear()).tag("a").through(linear()).tag("b").output("b", "a").build()
    assert list(named.to_fx()(X)) == ["b", "a"]


@pytest.mark.parametrize(
    "finish",
    [
        lambda flow: flow.loop_body(linear()).until_cond(ThresholdHalt(0.2), 3).build(),
        lambda flow: flow.switch(ArgmaxSelector(4, 2), [linear(), linear()]).build(),
        lambda flow: flow.map(linear()).each().build(),
    ],
    ids=["loop", "switch", "map"],
)
def test_what_depends_on_values_or_sizes_cannot_be_traced(finish):
    graph = finish(FlowBuilder(linear()))
    node = graph.nodes[-1].id
    with pytest.raises(ExportError, match=rf"cannot be traced at node {node}: .*\nhint: use mode="):
        graph.to_fx()
    graph(X)


HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxscript")))


@pytest.mark.skipif(HAS_ONNX, reason="the packages are there")
def test_missing_onnx_packages_are_named(tmp_path):
    with pytest.raises(ExportError, match=r"needs onnx and onnxscript\nhint: pip install 'flodl\["):
        stateful().to_onnx(tmp_path / "a.onnx", X)


@pytest.mark.skipif(not HAS_ONNX, reason="needs onnx and onnxscript")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [stateful, switched, lambda: FlowBuilder(linear()).build()])
def test_onnx_file_is_written_and_checked(make, tmp_path):
    import onnx

    path = tmp_path / "a.onnx"
    make().to_onnx(path, X)
    onnx.checker.check_model(str(path))
