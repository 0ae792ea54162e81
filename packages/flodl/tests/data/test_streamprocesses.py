"""Streams that child processes read, each its share."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl.core.errors import DataStallError, DataWorkerError, ResumeMismatchError
from flodl.data import DataLoader

pytestmark = pytest.mark.multiproc


class Numbers:
    """Numbers, each with the id of the process that read it."""

    def __init__(self, count: int = 20, at_fifteen: str = "") -> None:
        self.count = count
        self.at_fifteen = at_fifteen

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            if number == 15 and self.at_fifteen == "raise":
                raise ValueError("cannot read fifteen")
            if number == 15 and self.at_fifteen == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if number == 15 and self.at_fifteen == "hang":
                threading.Event().wait(60)
            yield {"x": torch.tensor(number), "pid": torch.tensor(os.getpid())}


def loader(count: int = 20, at_fifteen: str = "", **options: Any) -> Any:
    defaults: dict[str, Any] = {"workers": 2, "drop_last": False}
    return DataLoader.from_iterable(Numbers(count, at_fifteen), 2, **{**defaults, **options})


def seen(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]


def test_children_take_turns_and_live_on() -> None:
    with loader() as made:
        epochs = [list(made.epoch(number)) for number in range(2)]
    for batches in epochs:
        assert seen(batches[:4]) == [0, 2, 1, 3, 4, 6, 5, 7]
        assert sorted(seen(batches)) == list(range(20))
        assert [batch.index for batch in batches] == list(range(10))
    pids = [{int(pid) for batch in batches for pid in batch["pid"]} for batches in epochs]
    assert pids[0] == pids[1]
    assert len(pids[0]) == 2
    assert os.getpid() not in pids[0]


@settings(max_examples=12, deadline=None)
@given(
    count=st.integers(0, 25),
    workers=st.integers(1, 3),
    world=st.integers(1, 2),
    taken=st.integers(0, 8),
    buffer=st.sampled_from([0, 4]),
)
def test_resumed_anywhere_each_sample_is_visited_once(
    count: int, workers: int, world: int, taken: int, buffer: int
) -> None:
    found: list[int] = []
    for rank in range(world):
        options = {"workers": workers, "shuffle_buffer": buffer}
        with loader(count, **options) as first, loader(count, **options) as second:
            first.partition(rank, world)
            second.partition(rank, world)
            found += seen(itertools.islice(first.epoch(1), taken))
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            found += seen(second.epoch(1))
    assert sorted(found) == list(range(count))


def test_an_epoch_that_was_left_does_not_reach_into_the_next() -> None:
    with loader() as made:
        for number in range(5):
            epoch = made.epoch(number)
            for _ in range(number):
                next(epoch)
        assert sorted(seen(made.epoch(9))) == list(range(20))


def test_an_error_and_a_death_end_the_epoch_at_their_batch() -> None:
    with loader(at_fifteen="raise") as made:
        epoch = made.epoch(0)
        with pytest.raises(DataWorkerError, match="ValueError: cannot read fifteen"):
            list(epoch)
        assert list(epoch) == []
    with loader(at_fifteen="die") as made:
        with pytest.raises(DataWorkerError, match=r"died \(killed by signal 9\)"):
            list(made.epoch(0))
        assert next(made.epoch(1))["x"].tolist() == [0, 2]


def test_a_child_that_hangs_is_ended_after_the_timeout() -> None:
    with loader(at_fifteen="hang", timeout=3.0) as made:
        with pytest.raises(DataStallError):
            list(made.epoch(0))
        assert next(made.epoch(1))["x"].tolist() == [0, 2]


def test_another_number_of_children_is_refused() -> None:
    with loader() as first, loader(workers=3) as second:
        next(first.epoch(0))
        with pytest.raises(ResumeMismatchError, match="^workers: the state was saved with 2"):
            second.load_state_dict(first.state_dict())


def test_a_dropped_loader_ends_its_children() -> None:
    made = loader()
    pids = {int(pid) for batch in made.epoch(0) for pid in batch["pid"]}
    del made
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
