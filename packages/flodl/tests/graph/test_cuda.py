"""Whole steps of a graph as one CUDA graph; needs a device."""

import copy

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import SoftmaxRouter, StateAdd, ThresholdHalt

pytestmark = pytest.mark.cuda
WIDTH, BATCH, STEPS = 16, 32, 50


def build():
    torch.manual_seed(0)
    flow = FlowBuilder(nn.Linear(WIDTH, WIDTH)).loop_body(nn.Linear(WIDTH, WIDTH)).for_n(5)
    flow = flow.through(StateAdd()).using("memory").through(nn.Tanh()).tag("memory")
    flow = flow.gate(SoftmaxRouter(WIDTH, 4), [nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    flow = flow.loop_body(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    return flow.while_cond(ThresholdHalt(0.9), 4, mode="masked").tag("out").build().cuda()


def stepper(graph):
    optimizer = torch.optim.Adam(graph.parameters(), lr=1e-3, fused=True, capturable=True)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = (graph(x) - y).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(graph.parameters(), 1.0)
        optimizer.step()
        graph.end_step()
        return loss.detach()

    return step


def test_captured_steps_equal_eager_ones():
    eager = build()
    captured = copy.deepcopy(eager)
    batches = torch.randn(STEPS, 2, BATCH, WIDTH, device="cuda")
    step = stepper(eager)
    expected = [step(x, y).item() for x, y in batches]

    assert captured.is_static
    captured.static_cells(batches[0, 0])
    x, y = torch.empty_like(batches[0]).unbind()
    step, losses, graph = stepper(captured), [], torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for batch in batches[:3]:  # real steps, on a side stream as capture demands
            x.copy_(batch[0])
            y.copy_(batch[1])
            losses.append(step(x, y).item())
    torch.cuda.current_stream().wait_stream(side)
    version = captured.version
    with torch.cuda.graph(graph):
        loss = step(x, y)
    for batch in batches[3:]:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        losses.append(loss.item())
    assert losses == expected
    assert captured.version == version
    captured.freeze("memory", allow_empty=True)
    assert captured.version > version


def test_profile_measures_the_device():
    graph = build()
    graph.enable_profiling()
    x = torch.randn(BATCH, WIDTH, device="cuda")
    graph(x)
    graph(x)
    profile = graph.profile()
    assert all(node.seconds > 0 for node in profile.nodes)
    assert any(node.seconds != node.host_seconds for node in profile.nodes)
    assert "each node is timed" in str(graph.capture_report())


@pytest.mark.filterwarnings("ignore")
def test_static_flow_compiles_with_inductor():
    torch._dynamo.reset()
    graph = build()
    x = torch.randn(BATCH, WIDTH, device="cuda")
    expected = graph(x)
    graph.reset_state()
    compiled = torch.compile(graph, fullgraph=True)
    assert torch.allclose(compiled(x), expected, rtol=1e-3, atol=1e-4)
