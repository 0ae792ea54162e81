import importlib.util
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from flodl.core.errors import ExportError
from flodl.graph import FlowBuilder, GraphPathError
from flodl.nn import ArgmaxSelector, StateAdd, ThresholdHalt

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
