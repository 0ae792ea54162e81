"""Leases of one loader: what is taken, cut off and given back adds up to what was leased."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    ConfigError,
    DataStallError,
    DataWorkerError,
    ResumeMismatchError,
    StaleIteratorError,
)
from flodl.data import Batch, DataLoader, Lease, LeaseFeed, RandomSampler, TensorDataSet

PREFETCH = pytest.mark.parametrize("prefetch", [0, 1, 4])


class Fetched:
    """Numbers through ``get_batch``; reading ``bad`` raises, ``slow`` waits for ``may_go_on``."""

    def __init__(self, count: int = 40, bad: int = -1, slow: int = -1) -> None:
        self.count = count
        self.bad = bad
        self.slow = slow
        self.is_waiting = threading.Event()
        self.may_go_on = threading.Event()

    def __len__(self) -> int:
        return self.count

    def get_batch(self, indices: torch.Tensor) -> Any:
        if self.bad in indices.tolist():
            raise OSError("disk gone")
        if self.slow in indices.tolist():
            self.is_waiting.set()
            assert self.may_go_on.wait(30)
        return {"x": indices}


def loader_of(count: int = 40, **options: Any) -> DataLoader:
    data = TensorDataSet(x=torch.arange(count))
    return DataLoader(data, **{"batch_size": 4, **options})


def feed_of(count: int = 40, **options: Any) -> LeaseFeed:
    return loader_of(count, **{"shuffle": False, **options}).leases()


def lease(number: int, *ranges: tuple[int, int], epoch: int = 0) -> Lease:
    return Lease(lease_id=number, epoch=epoch, ranges=ranges)


def batches_of(feed: LeaseFeed) -> list[Batch]:
    found = []
    while (batch := feed.take()) is not None:
        found.append(batch)
    return found


def drained(feed: LeaseFeed) -> list[int]:
    return [x for batch in batches_of(feed) for x in batch["x"].tolist()]


def positions(ranges: Any) -> list[int]:
    return [position for start, stop in ranges for position in range(start, stop)]


def test_a_batch_never_crosses_a_lease_and_says_which_it_is_of() -> None:
    member = loader_of(20, shuffle=False)
    member.assign(Lease(lease_id=7, epoch=0, ranges=((0, 3), (10, 13))))
    member.assign(Lease(lease_id=9, epoch=1, ranges=((3, 5),)))
    found = [
        (b.lease_id, b.epoch, b.index, b.ranges, b["x"].tolist())
        for b in batches_of(member.leases())
    ]
    assert found == [
        (7, 0, 0, ((0, 3), (10, 11)), [0, 1, 2, 10]),
        (7, 0, 1, ((11, 13),), [11, 12]),
        (9, 1, 0, ((3, 5),), [3, 4]),
    ]
    assert member.is_distributed


def test_a_lease_outside_the_epoch_is_refused() -> None:
    with pytest.raises(ConfigError, match="lease 3 reaches position 21: epoch 0 has 20 samples"):
        loader_of(20).assign(Lease(lease_id=3, epoch=0, ranges=((0, 21),)))


def test_an_epoch_ends_the_leases_and_leases_end_an_epoch() -> None:
    member = loader_of(20)
    feed = member.leases()
    epoch = member.epoch(0)
    with pytest.raises(StaleIteratorError, match="these leases ended"):
        feed.take()
    again = member.leases()
    assert again.take() is None
    with pytest.raises(StaleIteratorError):
        next(epoch)


@PREFETCH
def test_a_cut_lease_ends_after_the_batches_that_are_kept(prefetch: int) -> None:
    feed = feed_of(prefetch=prefetch)
    feed.assign(lease(1, (0, 10), (20, 30)))
    feed.assign(lease(2, (12, 16)))
    assert feed.cut(1, batches=3) == ((22, 30),)
    assert drained(feed) == [*range(10), 20, 21, *range(12, 16)]
    feed.close()


@PREFETCH
def test_what_was_taken_cannot_be_cut_off(prefetch: int) -> None:
    feed = feed_of(prefetch=prefetch)
    feed.assign(lease(1, (0, 18)))
    for _ in range(2):
        assert feed.take() is not None
    assert feed.cut(1, batches=1) == ((8, 18),)
    assert feed.cut(1) == ()
    assert feed.cut(99) == ()
    assert feed.take() is None
    feed.close()


@PREFETCH
def test_the_rest_of_all_leases_is_given_back_and_can_be_leased_again(prefetch: int) -> None:
    feed = feed_of(prefetch=prefetch)
    feed.assign(lease(1, (0, 8)))
    feed.assign(lease(2, (30, 40), (10, 12), epoch=1))
    batch = feed.take()
    assert batch is not None
    rest = feed.give_back()
    assert rest == (lease(1, (4, 8)), lease(2, (30, 40), (10, 12), epoch=1))
    assert (feed.take(), feed.give_back(), feed.batches_left) == (None, (), 0)
    for part in reversed(rest):
        feed.assign(part)
    assert drained(feed) == [*range(30, 40), 10, 11, *range(4, 8)]
    feed.close()


def test_progress_counts_what_was_taken_of_leases_that_are_not_done() -> None:
    feed = feed_of(prefetch=2)
    feed.assign(lease(1, (0, 6)))
    feed.assign(lease(2, (10, 15)))
    assert [(p.batches, p.samples, p.taken, p.left) for p in feed.progress()] == [
        (0, 0, (), ((0, 6),)),
        (0, 0, (), ((10, 15),)),
    ]
    assert feed.batches_left == 4
    for _ in range(3):
        feed.take()
    (progress,) = feed.progress()
    assert (progress.lease.lease_id, progress.samples) == (2, 4)
    assert (progress.taken, progress.left) == (((10, 14),), ((14, 15),))
    assert feed.batches_left == 1
    feed.take()
    assert feed.progress() == ()
    feed.close()


def test_a_lease_that_is_held_is_not_assigned_again() -> None:
    feed = feed_of()
    feed.assign(lease(1, (0, 4)))
    with pytest.raises(ConfigError, match="lease 1 is held already"):
        feed.assign(lease(1, (4, 8)))
    assert drained(feed) == [0, 1, 2, 3]
    feed.assign(lease(1, (4, 8)))
    assert drained(feed) == [4, 5, 6, 7]


def test_a_lease_of_nothing_is_done_at_once() -> None:
    feed = feed_of()
    feed.assign(lease(1))
    assert (feed.take(), feed.give_back(), feed.progress()) == (None, (), ())


def test_the_depth_is_measured_anew_for_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, measured = loader_of(prefetch=2), []
    depth = loader._delivery.depth
    begin = depth.begin_epoch
    feed = loader.leases()
    monkeypatch.setattr(depth, "begin_epoch", lambda: measured.append(begin()))
    for number, epoch in enumerate((0, 0, 1, 0, 1, 2)):
        feed.assign(lease(number, (4 * number, 4 * number + 4), epoch=epoch))
    assert measured == [2, 2, 2]
    feed.close()


def test_an_older_epoch_is_ordered_again() -> None:
    feed = feed_of(12, shuffle=True)
    for number, epoch in enumerate((5, 6, 3, 5)):
        feed.assign(lease(number, (0, 12), epoch=epoch))
    expected = [RandomSampler(12).indices(epoch).tolist() for epoch in (5, 6, 3, 5)]
    assert drained(feed) == [sample for order in expected for sample in order]


@PREFETCH
def test_a_batch_that_cannot_be_read_is_given_back_with_all_that_follow(prefetch: int) -> None:
    loader = DataLoader(Fetched(bad=9), batch_size=4, shuffle=False, prefetch=prefetch)
    feed = loader.leases()
    feed.assign(lease(1, (0, 16)))
    feed.assign(lease(2, (20, 24)))
    assert [feed.take() is not None for _ in range(2)] == [True, True]
    with pytest.raises(DataWorkerError, match=r"epoch 0, batch 2 \(samples 8, 9, 10, 11\): OSErr"):
        feed.take()
    assert not feed.is_open
    with pytest.raises(StaleIteratorError, match=r"these leases ended.*\n.*begins anew"):
        feed.take()
    assert feed.give_back() == (lease(1, (8, 16)), lease(2, (20, 24)))
    assert feed.give_back() == ()
    again = loader.leases()
    again.assign(lease(3, (20, 24)))
    assert drained(again) == [20, 21, 22, 23]
    loader.close()
    with pytest.raises(StaleIteratorError):
        again.assign(lease(4, (0, 4)))


def test_a_read_that_hangs_ends_the_leases_and_stays_to_be_given_back() -> None:
    data = Fetched(slow=5)
    loader = DataLoader(data, batch_size=4, shuffle=False, timeout=0.05)
    feed = loader.leases()
    feed.assign(lease(1, (0, 12)))
    feed.take()
    with pytest.raises(DataStallError, match=r"batch 1 \(samples 4, 5, 6, 7\): no batch within"):
        feed.take()
    assert feed.give_back() == (lease(1, (4, 12)),)
    data.may_go_on.set()


def test_a_batch_that_is_waited_for_counts_as_taken() -> None:
    data = Fetched(slow=5)
    loader = DataLoader(data, batch_size=4, shuffle=False, prefetch=1)
    feed = loader.leases()
    feed.assign(lease(1, (0, 20)))
    assert feed.take() is not None
    found: list[Batch | None] = []
    consumer = threading.Thread(target=lambda: found.append(feed.take()))
    consumer.start()
    assert data.is_waiting.wait(30)
    poll_until(lambda: feed.batches_left == 3)  # the second is claimed
    assert feed.give_back() == (lease(1, (8, 20)),)
    data.may_go_on.set()
    consumer.join(30)
    (batch,) = found
    assert batch is not None
    assert batch.ranges == ((4, 8),)
    assert (feed.take(), feed.progress()) == (None, ())
    feed.close()


def poll_until(holds: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(30_000):
        if holds():
            return
        waiting.wait(0.001)
    raise AssertionError("it did not come to hold within 30 s")


def test_leases_begin_to_load_when_they_are_assigned() -> None:
    data = Fetched(slow=5)
    loader = DataLoader(data, batch_size=4, shuffle=False, prefetch=2)
    feed = loader.leases()
    feed.assign(lease(1, (4, 8)))
    assert data.is_waiting.wait(30)
    data.may_go_on.set()
    feed.close()


def test_an_interrupt_while_a_batch_is_waited_for_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = feed_of(prefetch=0)
    feed.assign(lease(1, (0, 12)))
    assert feed.take() is not None
    inner: Any = feed._feed
    take = inner.take

    def interrupted() -> Any:
        monkeypatch.setattr(inner, "take", take)
        raise KeyboardInterrupt

    monkeypatch.setattr(inner, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        feed.take()
    assert feed.cut(1, batches=2) == ((8, 12),)
    assert drained(feed) == [4, 5, 6, 7]


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_controller_s_thread_may_cut_while_another_takes(
    prefetch: int, seed: int, request: pytest.FixtureRequest
) -> None:
    """Each position is taken, or was handed back: never both, never neither."""
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-5)
    feed = feed_of(4000, prefetch=prefetch, batch_size=3)
    draw = torch.Generator().manual_seed(seed)
    taken: list[int] = []
    is_over = threading.Event()

    def consume() -> None:
        while True:
            over = is_over.is_set()
            batch = feed.take()
            if batch is not None:
                taken.extend(batch["x"].tolist())
            elif over:
                return

    consumer = threading.Thread(target=consume)
    consumer.start()
    handed_back: list[int] = []
    for number, start in enumerate(range(0, 4000, 40)):
        feed.assign(lease(number, (start, start + 40)))
        choice = int(torch.randint(4, (1,), generator=draw))
        if choice == 0:
            handed_back += positions(feed.cut(number, int(torch.randint(9, (1,), generator=draw))))
        elif choice == 1:
            for rest in feed.give_back():
                handed_back += positions(rest.ranges)
        assert sum(progress.samples for progress in feed.progress()) >= 0
    is_over.set()
    consumer.join(60)
    assert not consumer.is_alive()
    feed.close()
    assert sorted(taken + handed_back) == list(range(4000))
    assert taken == sorted(taken)


def test_the_state_of_a_leased_loader_holds_what_identifies_its_order() -> None:
    def loader(**options: Any) -> DataLoader:
        return DataLoader(TensorDataSet(x=torch.arange(30)), **{"batch_size": 4, **options})

    first = loader()
    list(first.epoch(0))
    first.assign(lease(1, (0, 8), epoch=7))
    assert first.leases().take() is not None
    state = first.state_dict()
    assert (state["epoch"], state["batches"], state["pending"]) == (7, 0, None)
    assert state["order_crc"] is not None
    second = loader()
    second.load_state_dict(state)
    assert len(second.epoch(7)) == 7
    with pytest.raises(ResumeMismatchError, match="^order_crc: epoch 7"):
        loader().load_state_dict({**state, "order_crc": 1})
    with pytest.raises(ResumeMismatchError, match="^seed"):
        loader(seed=1).load_state_dict(state)
