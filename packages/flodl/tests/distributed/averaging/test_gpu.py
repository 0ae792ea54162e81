"""The data plane with GPU ranks: over NCCL on two GPUs, over the CPU plane on one."""

import os
import signal
import time

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore

from flodl.distributed.averaging.gradients import GradientPlane
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.collective.formation import Formation

NEEDS_TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def store_at(port):
    return PrefixStore("t", TCPStore("127.0.0.1", port))


def model_on(rank, device):
    torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300)).to(device)
    generator = torch.Generator().manual_seed(rank)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def averaged(rank, port, fabric, device_of):
    device = torch.device("cuda", device_of[rank])
    model = model_on(rank, device)
    places = [t.data_ptr() for t in [*model.parameters(), *model.buffers()]]
    plane = ParameterPlane(model, PlaneConfig(fabric=fabric))
    plane.form(Formation.of_size(2, rank), store_at(port))
    plane.synchronize(0, [1])
    history = []
    for window, weight in enumerate(([0.75, 0.25], [0.0, 1.0]), 1):
        with torch.no_grad():
            model[0].weight.add_(0.1 * (rank + 1))
        before = model[0].weight.cpu()
        plane.snapshot(window)
        plane.contribute(window, weight[rank])
        assert plane.wait(timeout_s=60) is Progress.DONE, plane.failure
        plane.commit()
        history.append((before, model[0].weight.cpu(), plane.outcome.delta))
    assert places == [t.data_ptr() for t in [*model.parameters(), *model.buffers()]]
    plane.close()
    return history


def check(first, second):
    for window, (w0, w1) in enumerate(([0.75, 0.25], [0.0, 1.0])):
        wanted = w0 * first[window][0].double() + w1 * second[window][0].double()
        torch.testing.assert_close(first[window][1].double(), wanted, rtol=0, atol=1e-6)
        assert torch.equal(first[window][1], second[window][1])
    assert first[0][2] > 0


@pytest.mark.nccl
@NEEDS_TWO
def test_two_gpus_average_over_nccl(process_ranks):
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    check(*process_ranks(2, averaged, server.port, "nccl", [0, 1]))
    del server


@pytest.mark.cuda
def test_two_ranks_on_one_gpu_average_over_the_cpu_plane(process_ranks):
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    check(*process_ranks(2, averaged, server.port, "gloo", [0, 0]))
    del server


def reduced(rank, port):
    device = torch.device("cuda", rank)
    model = model_on(0, device)
    plane = GradientPlane(model, PlaneConfig(fabric="nccl"))
    plane.form(Formation.of_size(2, rank), store_at(port))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float(rank))
    plane.contribute(1, [3, 1][rank])
    assert plane.wait(timeout_s=60) is Progress.DONE, plane.failure
    outcome = plane.commit()
    values = [p.grad.unique().tolist() for p in model.parameters()]
    plane.close()
    return outcome.samples, outcome.is_usable, values


@pytest.mark.nccl
@NEEDS_TWO
def test_gradients_average_over_nccl(process_ranks):
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    for samples, is_usable, values in process_ranks(2, reduced, server.port):
        assert (samples, is_usable) == (4, True)
        assert values == [[0.25]] * 4
    del server


def bereft(rank, port):
    """Rank 1 is killed inside an all-reduce; rank 0 leaves it by abort and goes on alone."""
    model = model_on(rank, torch.device("cuda", rank))
    plane = ParameterPlane(model, PlaneConfig(fabric="nccl"))
    store = store_at(port)
    plane.form(Formation.of_size(2, rank), store)
    plane.snapshot(1)
    plane.contribute(1, 0.5)
    assert plane.wait(timeout_s=60) is Progress.DONE, plane.failure
    plane.commit()
    if rank == 1:
        store.set("goes", "1")
        os.kill(os.getpid(), signal.SIGKILL)
    store.wait(["goes"])
    plane.snapshot(2)
    plane.contribute(2, 0.5)
    assert plane.wait(timeout_s=2) is not Progress.DONE
    started_at = time.monotonic()
    assert plane.abandon() == 1
    plane.form(Formation.of_size(1, 0, generation=2), store)
    plane.snapshot(2)
    plane.contribute(2, 1.0)
    assert plane.wait(timeout_s=60) is Progress.DONE, plane.failure
    plane.commit()
    loss = model(torch.randn(8, 300, device="cuda:0")).sum().item()
    took = time.monotonic() - started_at
    plane.close()
    return took, loss == loss


@pytest.mark.nccl
@NEEDS_TWO
def test_a_survivor_leaves_a_dead_all_reduce_and_goes_on(process_ranks):
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    took, is_number = process_ranks(2, bereft, server.port, may_die={1})[0]
    assert took < 3  # the bar of a survivor's next step
    assert is_number
    del server
