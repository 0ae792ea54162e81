import threading
import weakref

import pytest
import torch
from torch import nn

import flodl.device
from flodl.core.errors import CaptureError, ConfigError
from flodl.device import (
    CaptureMode,
    GpuEvent,
    GpuGraph,
    GpuStream,
    gpu_graph_capture,
    gpu_graph_pool_handle,
    gpu_memory_info,
)


def test_without_a_gpu_a_graph_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for make in (GpuGraph, gpu_graph_pool_handle, lambda: gpu_graph_capture(print)):
        with pytest.raises(CaptureError, match="no_gpu") as caught:
            make()
        assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CudaGraph", GpuGraph),
        ("cuda_graph_capture", gpu_graph_capture),
        ("cuda_graph_pool_handle", gpu_graph_pool_handle),
        ("CudaEvent", GpuEvent),
        ("CudaStream", GpuStream),
        ("cuda_memory_info", gpu_memory_info),
    ],
)
def test_old_names_still_work_and_warn(old, new):
    with pytest.warns(DeprecationWarning, match=rf"{old} is now flodl.device.{new.__name__}"):
        assert getattr(flodl.device, old) is new
    with pytest.raises(AttributeError, match="no attribute 'cuda_graph'"):
        flodl.device.cuda_graph  # noqa: B018 - reading it is the test


@pytest.mark.cuda
def test_a_graph_keeps_what_its_function_uses_until_it_is_reset():
    x = torch.ones(4, device="cuda")
    seen = weakref.ref(x)
    y = torch.zeros(4, device="cuda")
    graph = gpu_graph_capture(lambda x=x: y.add_(x))
    del x
    assert seen() is not None
    y.zero_()
    graph.replay()
    assert y.tolist() == [1.0] * 4
    graph.reset()
    assert seen() is None


@pytest.mark.cuda
def test_a_replay_reads_inputs_and_writes_outputs_in_place():
    x = torch.zeros(4, device="cuda")
    graph = GpuGraph()
    assert not graph.is_captured
    torch.zeros(1, device="cuda").add_(1)
    with graph.capture():
        y = x * 2
    assert graph.is_captured
    for value in (1.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value] * 4
    graph.reset()
    assert not graph.is_captured


@pytest.mark.cuda
def test_misuse_is_named():
    graph = GpuGraph()
    for wrong in (graph.replay, graph.pool):
        with pytest.raises(CaptureError, match="nothing is captured"):
            wrong()
    x = torch.zeros(1, device="cuda")
    with graph.capture():
        x.add_(1)
        with pytest.raises(CaptureError, match="is being captured"):
            graph.reset()
        with pytest.raises(CaptureError, match="is being captured"), graph.capture():
            pass
        with pytest.raises(CaptureError, match="another capture is running"), GpuGraph().capture():
            pass
    with pytest.raises(CaptureError, match="holds a capture"), graph.capture():
        pass


@pytest.mark.cuda
def test_random_numbers_differ_between_replays_and_go_on_after_a_failure():
    graph = GpuGraph()
    with graph.capture():
        y = torch.rand(3, device="cuda")
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)
    torch.manual_seed(3)
    expected = torch.rand(2, 3, device="cuda")
    torch.manual_seed(3)
    with pytest.raises(RuntimeError), GpuGraph().capture():
        torch.rand(3, device="cuda").sum().item()
    assert torch.equal(torch.rand(2, 3, device="cuda"), expected)
    assert not torch.cuda.is_current_stream_capturing()
    with GpuGraph().capture():
        y.add_(1)


@pytest.mark.cuda
def test_another_thread_may_pin_and_copy_during_a_capture():
    x = torch.zeros(8, device="cuda")
    errors = []

    def work():
        try:
            for _ in range(5):
                torch.ones(1000).pin_memory().to("cuda", non_blocking=True)
        except RuntimeError as error:
            errors.append(error)

    graph = GpuGraph()
    with graph.capture(mode=CaptureMode.THREAD_LOCAL):
        x.add_(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not errors
    graph.replay()
    assert x[0].item() == 1.0


@pytest.mark.cuda
def test_graphs_of_one_pool_pass_values_through_static_tensors():
    pool = gpu_graph_pool_handle()
    x, crossing = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    first, second = GpuGraph(), GpuGraph()
    with first.capture(pool):
        crossing.copy_(x * 2)
    with second.capture(pool):
        y = crossing + 1
    assert first.pool() == second.pool()
    for value in (1.0, 5.0):
        x.fill_(value)
        first.replay()
        second.replay()
        assert y.tolist() == [2 * value + 1] * 4


@pytest.mark.cuda
def test_the_warm_up_leaves_no_trace_in_what_is_restored():
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, fused=True)
    x = torch.ones(2, 4, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    with pytest.raises(ConfigError, match="no state yet"):
        gpu_graph_capture(step, restore=[model, optimizer])
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    before = [p.detach().clone() for p in model.parameters()]
    graph = gpu_graph_capture(step, restore=[model, optimizer])
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert optimizer.state[model.weight]["step"].item() == 1.0
    graph.replay()
    assert optimizer.state[model.weight]["step"].item() == 2.0
    assert not torch.equal(before[0], model.weight)
