"""Batches formed in child processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from typing import Any

import pytest
import torch

from flodl.core.errors import DataStallError, DataWorkerError
from flodl.data import Batch, DataLoader, Lease
from flodl.data.processes import PIPED_BYTES, Child, RemoteTraceback, send

pytestmark = pytest.mark.multiproc


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("no way")
        self.lock = threading.Lock()


class Items:
    """Numbers, each with the id of the process that read it and a random number of there."""

    def __init__(self, count: int = 12, at_five: str = "") -> None:
        self.count = count
        self.at_five = at_five

    def __len__(self) -> int:
        return self.count

    def get(self, index: int) -> Any:
        if index == 5 and self.at_five == "raise":
            raise ValueError("cannot read five")
        if index == 5 and self.at_five == "raise unpicklable":
            raise Unpicklable
        if index == 5 and self.at_five == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 5 and self.at_five == "hang":
            threading.Event().wait(60)
        return {"x": torch.tensor(index), "pid": torch.tensor(os.getpid()), "r": torch.rand(())}


def loader(at_five: str = "", **options: Any) -> DataLoader:
    defaults = {"batch_size": 2, "shuffle": False, "worker_mode": "process", "workers": 2}
    return DataLoader(Items(at_five=at_five), **{**defaults, **options})


def test_batches_come_in_order_from_several_processes_that_live_on() -> None:
    with loader(transform=lambda batch: batch.replace({"x": batch["x"] * 10})) as made:
        epochs = [list(made.epoch(number)) for number in range(2)]
    assert [[b["x"].tolist() for b in batches] for batches in epochs] == [
        [[20 * n, 20 * n + 10] for n in range(6)]
    ] * 2
    pids = [{int(pid) for b in batches for pid in b["pid"]} for batches in epochs]
    assert pids[0] == pids[1]
    assert len(pids[0]) == 2
    assert os.getpid() not in pids[0]


def test_random_numbers_depend_on_seed_epoch_and_batch_not_on_the_process() -> None:
    def draws(workers: int, epoch: int, seed: int = 3) -> list[float]:
        with loader(workers=workers, seed=seed) as made:
            return [float(r) for batch in made.epoch(epoch) for r in batch["r"]]

    one = draws(1, 0)
    assert draws(3, 0) == one
    assert len(set(one)) == len(one)
    assert not set(draws(1, 1)) & set(one)
    assert not set(draws(1, 0, seed=4)) & set(one)


def test_an_error_reaches_the_user_with_the_traceback_of_the_child() -> None:
    with loader("raise") as made:
        epoch = made.epoch(0)
        assert [next(epoch)["x"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(
            DataWorkerError, match=r"batch 2 \(samples 4, 5\): ValueError: cannot"
        ) as caught:
            next(epoch)
        assert isinstance(caught.value.__cause__, ValueError)
        assert isinstance(caught.value.__cause__.__cause__, RemoteTraceback)
        assert 'raise ValueError("cannot read five")' in "".join(
            traceback.format_exception(caught.value)
        )
        assert list(epoch) == []


def test_an_error_that_cannot_travel_comes_as_its_text() -> None:
    with (
        loader("raise unpicklable") as made,
        pytest.raises(DataWorkerError, match="Unpicklable: no way"),
    ):
        list(made.epoch(0))


def test_a_killed_worker_is_an_error_and_the_next_epoch_has_a_new_one() -> None:
    with loader("die") as made:
        epoch = made.epoch(0)
        with pytest.raises(DataWorkerError, match=r"batch 2 .* died \(killed by signal 9\)"):
            list(epoch)
        assert next(made.epoch(1))["x"].tolist() == [0, 1]


def test_a_worker_that_hangs_is_ended_after_the_timeout() -> None:
    before = threading.active_count()
    with loader("hang", timeout=5.0) as made:
        epoch = made.epoch(0)
        with pytest.raises(DataStallError, match=r"batch 2 \(samples 4, 5\): no batch within"):
            list(epoch)
        assert next(made.epoch(1))["x"].tolist() == [0, 1]
    for thread in threading.enumerate():
        if thread.name.startswith("flodl-data"):
            thread.join(10)
    assert threading.active_count() == before


def test_a_loader_that_is_dropped_ends_its_processes() -> None:
    made = loader()
    pids = {int(pid) for batch in made.epoch(0) for pid in batch["pid"]}
    del made
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_abandoned_epoch_leaves_the_processes_for_the_next() -> None:
    with loader() as made:
        first = next(made.epoch(0))
        batches = list(made.epoch(1))
    assert isinstance(first, Batch)
    assert [x for batch in batches for x in batch["x"].tolist()] == list(range(12))


def test_leases_are_read_in_processes_too() -> None:
    with loader() as made:
        feed = made.leases()
        for number, ranges in enumerate([((0, 5),), ((5, 12),)]):
            feed.assign(Lease(lease_id=number, epoch=0, ranges=ranges))
        found = []
        while (batch := feed.take()) is not None:
            found += [(batch.lease_id, x) for x in batch["x"].tolist()]
    assert found == [(0, x) for x in range(5)] + [(1, x) for x in range(5, 12)]


def _sent(message):
    here, there = multiprocessing.Pipe()
    with here, there:
        writer = threading.Thread(target=send, args=(there, message))
        writer.start()
        received = here.recv()
        writer.join()
    return received


TENSORS = {
    "dense": torch.arange(12.0).view(3, 4),
    "transposed": torch.arange(12.0).view(3, 4).T,
    "expanded": torch.arange(3).expand(4, 3),
    "scalar": torch.tensor(7),
    "empty": torch.empty(0, 3),
    "bool": torch.tensor([True, False]),
    "bfloat16": torch.tensor([1.5, -0.0, float("inf")], dtype=torch.bfloat16),
    "complex": torch.tensor([1 + 2j, 3 - 4j]),
    "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_a_tensor_arrives_as_it_was_sent(tensor):
    (received,) = _sent([tensor])
    assert type(received) is torch.Tensor
    assert received.dtype == tensor.dtype
    assert received.shape == tensor.shape
    assert torch.equal(received, tensor)


def test_a_small_tensor_that_arrives_is_its_receivers_own():
    sent = torch.zeros(3)
    received = _sent(sent)
    received += 1
    assert sent.tolist() == [0, 0, 0]
    assert received.tolist() == [1, 1, 1]


def _count(pipe, parent, rows):
    send(pipe, torch.arange(rows))
    pipe.recv()


@pytest.mark.parametrize("rows", [PIPED_BYTES // 8, PIPED_BYTES // 8 + 1])
def test_tensors_arrive_whole_on_both_sides_of_the_limit(rows):
    child = Child(_count, rows)
    try:
        received = child.receive()
        assert torch.equal(received, torch.arange(rows))
        assert received.is_shared() == (rows * 8 > PIPED_BYTES)
    finally:
        child.kill()
