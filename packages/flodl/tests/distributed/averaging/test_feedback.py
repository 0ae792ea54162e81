"""What bfloat16 rounds away in one window is in the next, in every exchange that has it."""

import pytest
import torch
from torch import nn

from flodl.distributed.averaging import kernels
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.store import MemoryStore

WEIGHTS = (0.7, 0.3)
WAYS = {"flat": ("flat", "hh"), "one host": ("two_level", "hh"), "two hosts": ("two_level", "ab")}
WINDOWS = 12


def trained(rank, memory, way, config, owed=None, first=1):
    """Average windows of drift; return the consensus, all that ranks sent, and what is owed."""
    topology, hosts = WAYS[way]
    seats = tuple(Seat(uid=f"u{k}", rank=k, host=hosts[k]) for k in range(2))
    formation = Formation(
        run=f"r{first}", nonce="n", generation=1, rank=rank, seats=seats, topology=topology
    )
    model = nn.Linear(40, 3, bias=False)
    nn.init.zeros_(model.weight)
    plane = ParameterPlane(model, config)
    plane.form(formation, ControlStore(memory))
    if owed is not None:
        plane.load_residual(owed)
    consensus, sent = [], []
    for window in range(first, first + WINDOWS):
        drift = torch.Generator().manual_seed(100 * window + rank)
        with torch.no_grad():
            model.weight.add_(1e-2 * torch.randn(model.weight.shape, generator=drift))
        if window > first:  # the first one travels in float32
            delta = (model.weight.detach() - consensus[-1]).flatten()
            sent.append(kernels.pack_bf16(delta))
        plane.snapshot(window)
        plane.contribute(window, WEIGHTS[rank])
        assert plane.wait(timeout_s=30) is Progress.DONE, plane.failure
        plane.commit()
        consensus.append(plane.consensus.tensors()["weight"])
    residual = plane.residual()
    with pytest.raises(CollectiveError, match="a residual of 7 elements"):
        plane.load_residual(torch.zeros(7))
    plane.close()
    return consensus, sent, residual


@pytest.mark.parametrize("way", ["flat", "one host"])
def test_what_was_sent_is_what_has_arrived_and_what_is_owed(thread_ranks, way):
    memory = MemoryStore()
    config = PlaneConfig(wire="bf16")
    results = thread_ranks(2, lambda k: trained(k, memory, way, config))
    consensus = results[0][0]
    means = [
        kernels.weighted_average(list(pair), WEIGHTS)
        for pair in zip(*(sent for _, sent, _ in results), strict=True)
    ]
    owed = torch.cat([r for *_, r in results if r is not None])[: means[0].numel()]
    moved = (consensus[-1] - consensus[0]).flatten()
    total = torch.stack(means).double().sum(0)
    torch.testing.assert_close((moved + owed).double(), total, rtol=0, atol=1e-7)
    assert (moved.double() - total).abs().max() > 1e-6


@pytest.mark.parametrize("way", WAYS)
def test_without_feedback_nothing_is_owed(thread_ranks, way):
    memory = MemoryStore()
    config = PlaneConfig(wire="bf16", error_feedback=False)
    results = thread_ranks(2, lambda k: trained(k, memory, way, config))
    assert [r for *_, r in results] == [None, None]
    assert torch.equal(results[0][0][-1], results[1][0][-1])


def test_a_loaded_residual_changes_what_comes_next(thread_ranks):
    memory = MemoryStore()
    config = PlaneConfig(wire="bf16")
    owed = [torch.full((60,), 1e-3), torch.full((60,), 1e-3)]
    plain = thread_ranks(2, lambda k: trained(k, memory, "flat", config, first=1))
    memory = MemoryStore()
    paid = thread_ranks(2, lambda k: trained(k, memory, "flat", config, owed[k], first=1))
    gap = (paid[0][0][-1] - plain[0][0][-1]).mean().item()
    assert gap == pytest.approx(1e-3, rel=0.05)
