"""Ranks that die or freeze in the middle of an average, and fifty generations in a row."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore

from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.store import MemoryStore


def formation(rank, count, topology, generation=1):
    seats = tuple(Seat(uid=f"u{k}", rank=k, host="h") for k in range(count))
    return Formation(
        run="r", nonce="n", generation=generation, rank=rank, seats=seats, topology=topology
    )


def model_of(rank):
    model = nn.Linear(1000, 10)
    nn.init.constant_(model.weight, float(rank))
    return model


def survivor(rank, port, topology, doomed, how):
    """Two ranks average once; then one is lost in the middle, and the other goes on alone."""
    store = PrefixStore("t", TCPStore("127.0.0.1", port))
    store.set(f"pid/{rank}", str(os.getpid()))
    model = model_of(rank)
    place = model.weight.data_ptr()
    plane = ParameterPlane(model, PlaneConfig())
    plane.form(formation(rank, 2, topology), store)
    plane.snapshot(1)
    plane.contribute(1, 0.5)
    assert plane.wait(timeout_s=30) is Progress.DONE
    plane.commit()
    if rank == doomed:
        store.set("goes", "1")
        os.kill(os.getpid(), how)
        time.sleep(60)  # a frozen one; it is killed before that
    store.wait(["goes"])
    with torch.no_grad():
        model.weight.add_(1.0)
    before = model.weight.clone()
    plane.snapshot(2)
    plane.contribute(2, 0.5)
    progress = plane.wait(timeout_s=1.5)
    started_at = time.monotonic()
    completed = plane.abandon()
    left_after = time.monotonic() - started_at
    assert torch.equal(model.weight, before)
    plane.form(formation(0, 1, topology, generation=2), store)
    plane.snapshot(2)
    plane.contribute(2, 1.0)
    assert plane.wait(timeout_s=30) is Progress.DONE
    plane.commit()
    plane.close()
    if how == signal.SIGSTOP:
        os.kill(int(store.get(f"pid/{doomed}")), signal.SIGKILL)
    return (
        progress,
        completed,
        left_after,
        torch.equal(model.weight, before),
        (place == model.weight.data_ptr()),
    )


@pytest.mark.multiproc
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
@pytest.mark.parametrize(("topology", "doomed"), [("flat", 1), ("two_level", 1), ("two_level", 0)])
def test_a_rank_lost_in_the_middle_leaves_the_other_whole_and_free(
    process_ranks, topology, doomed, how
):
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    results = process_ranks(2, survivor, server.port, topology, doomed, how, may_die={doomed})
    progress, completed, left_after, is_unchanged, is_in_place = results[1 - doomed]
    # a dead peer's sockets close; nothing tells of a frozen one, or through shared memory
    assert progress in (Progress.PENDING, Progress.FAILED)
    assert completed == 1
    assert left_after < 5
    assert is_unchanged
    assert is_in_place


def counted():
    return [sum(1 for _ in Path("/proc/self", kind).iterdir()) for kind in ("fd", "task")]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts through /proc")
@pytest.mark.parametrize("topology", ["flat", "two_level"])
@pytest.mark.parametrize("is_background", [False, True], ids=["held", "background"])
def test_fifty_generations_leave_nothing_behind(thread_ranks, topology, is_background):
    memory = MemoryStore()
    counts = []

    def rank(k):
        model = model_of(k)
        plane = ParameterPlane(model, PlaneConfig(is_background=is_background))
        for number in range(1, 54):
            plane.form(formation(k, 2, topology, number), ControlStore(memory))
            if k == 0:
                memory.forget(f"r/n/{number - 1}/")
            plane.snapshot(number)
            if number % 3:
                plane.contribute(number, 0.5)
                assert plane.wait(timeout_s=30) is Progress.DONE
                plane.commit()
            elif k == 0:
                plane.contribute(number, 0.5)  # and the other never comes
            plane.abandon()
            if number == 3 and k == 0:
                counts.append(settled(lambda: True))
        plane.close()
        return model.weight[0, 0].item()

    assert thread_ranks(2, rank) == [0.5, 0.5]
    (before,) = counts
    after = settled(lambda: all(a <= b for a, b in zip(counted(), before, strict=True)))
    assert all(a <= b for a, b in zip(after, before, strict=True)), f"{before} became {after}"


def settled(is_enough):
    """Count what the process holds, once that is enough or after a while."""
    deadline = time.monotonic() + 10
    while not is_enough() and time.monotonic() < deadline:
        time.sleep(0.05)
    return counted()
