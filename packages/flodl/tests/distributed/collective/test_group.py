"""Groups formed over the control store by threads: operations, abandoning, generations."""

import threading
import time
from pathlib import Path

import pytest
import torch

from flodl.core.errors import FormationError
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.group import GroupPlan, form_group
from flodl.distributed.collective.store import MemoryStore


def plan(rank, size, name="g", timeout_s=30.0):
    return GroupPlan(prefix=f"test/{name}", rank=rank, size=size, timeout_s=timeout_s)


def formed(memory, rank, size, name="g", **options):
    return form_group(plan(rank, size, name, **options), ControlStore(memory), Graveyard())


def test_operations_over_threads(thread_ranks):
    memory = MemoryStore()

    def rank(k):
        group = formed(memory, k, 3)
        total = torch.full((4,), float(k + 1))
        group.complete(group.all_reduce(total))
        rows = torch.empty(3, 2)
        group.complete(group.all_gather(rows, torch.full((2,), float(k))))
        sent = torch.arange(3.0).view(3, 1) + 10 * k
        received = torch.empty(3, 1)
        group.complete(group.exchange(received, sent))
        news = torch.full((5,), k, dtype=torch.uint8)
        group.complete(group.broadcast(news, 2))
        group.close()
        return total, rows, received, news

    for k, (total, rows, received, news) in enumerate(thread_ranks(3, rank)):
        assert total.tolist() == [6.0] * 4
        assert rows.tolist() == [[0, 0], [1, 1], [2, 2]]
        assert received.flatten().tolist() == [k, 10 + k, 20 + k]
        assert news.tolist() == [2] * 5


def test_sixteen_ranks_form(thread_ranks):
    memory = MemoryStore()

    def rank(k):
        group = formed(memory, k, 16)
        total = torch.ones(1)
        group.complete(group.all_reduce(total))
        group.close()
        return total.item()

    assert thread_ranks(16, rank) == [16.0] * 16


def test_a_rank_that_does_not_come_is_a_formation_error():
    with pytest.raises(FormationError, match="rank 0 of 2"):
        formed(MemoryStore(), 0, 2, timeout_s=0.5)


def test_formation_is_interrupted_at_once():
    store = ControlStore(MemoryStore())
    with pytest.raises(Interrupted):
        form_group(plan(0, 2), store, Graveyard(), interrupted=lambda: True)
    store.close()


def test_an_abandoned_operation_frees_its_rank_at_once_and_ends_later(thread_ranks):
    memory = MemoryStore()
    graveyards = [Graveyard(), Graveyard()]
    is_left = threading.Event()

    def rank(k):
        graveyard = graveyards[k]
        group = form_group(plan(k, 2, "one"), ControlStore(memory), graveyard)
        if k == 0:
            lonely = group.all_reduce(torch.ones(1000))
            with pytest.raises(Interrupted):
                group.complete(lonely, interrupted=lambda: True)
            group.abandon()
            assert len(graveyard) == 1
            with pytest.raises(CollectiveError, match="abandoned"):
                group.all_reduce(torch.ones(1))
        again = form_group(plan(k, 2, "two"), ControlStore(memory), graveyard)
        total = torch.ones(1)
        again.complete(again.all_reduce(total))
        if k == 0:
            is_left.set()
        else:
            assert is_left.wait(20)
            group.abandon()
        again.close()
        return total.item()

    assert thread_ranks(2, rank) == [2.0, 2.0]
    assert all(graveyard.wait(20) for graveyard in graveyards)


def test_a_late_operation_is_named(thread_ranks):
    memory = MemoryStore()
    is_late = threading.Event()

    def rank(k):
        group = formed(memory, k, 2)
        if k == 0:
            with pytest.raises(CollectiveError, match=r"test/g.*not done after 0\.05 s"):
                group.complete(group.all_reduce(torch.ones(1)), timeout_s=0.05)
            is_late.set()
        assert is_late.wait(20)
        group.abandon()

    thread_ranks(2, rank)


def test_torch_gives_an_operation_up_after_a_time_of_its_own(thread_ranks):
    memory = MemoryStore()
    is_over = threading.Event()

    def rank(k):
        wanted = GroupPlan(prefix="test", rank=k, size=2, timeout_s=30, operation_timeout_s=0.3)
        group = form_group(wanted, ControlStore(memory), Graveyard())
        if k == 0:
            with pytest.raises(CollectiveError, match="all_reduce"):
                group.complete(group.all_reduce(torch.ones(1)), timeout_s=20)
            is_over.set()
        assert is_over.wait(30)
        group.close()

    thread_ranks(2, rank)


def test_a_peer_that_leaves_ends_the_operation_with_an_error(thread_ranks):
    memory = MemoryStore()

    def rank(k):
        graveyard = Graveyard()
        group = form_group(plan(k, 2), ControlStore(memory), graveyard)
        ready = torch.ones(1)
        group.complete(group.all_reduce(ready))
        if k == 1:
            group.abandon()
            return graveyard.wait(20)
        with pytest.raises(CollectiveError, match="all_reduce"):
            group.complete(group.all_reduce(torch.ones(1)), timeout_s=20)
        group.abandon()
        return graveyard.wait(20)

    assert thread_ranks(2, rank) == [True, True]


def counted():
    return [sum(1 for _ in Path("/proc/self", kind).iterdir()) for kind in ("fd", "task")]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts through /proc")
def test_fifty_generations_leave_no_thread_and_no_descriptor(thread_ranks):
    memory = MemoryStore()

    def generation(number):
        graveyards = [Graveyard(), Graveyard()]

        def rank(k):
            group = form_group(plan(k, 2, f"{number}"), ControlStore(memory), graveyards[k])
            operation = group.all_reduce(torch.ones(10))
            if number % 2:
                group.complete(operation)
            group.abandon()

        thread_ranks(2, rank)
        assert all(graveyard.wait(20) for graveyard in graveyards)
        memory.forget("test/")

    for number in range(3):
        generation(number)
    before = counted()
    for number in range(3, 53):
        generation(number)
    deadline = time.monotonic() + 10
    while any(a > b for a, b in zip(counted(), before, strict=True)):
        assert time.monotonic() < deadline, f"{before} became {counted()}"
        time.sleep(0.05)
