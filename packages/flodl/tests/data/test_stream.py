from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    DataError,
    DataStallError,
    DataWorkerError,
    StaleIteratorError,
)
from flodl.data import DataLoader

DEPTHS = pytest.mark.parametrize("prefetch", [0, 1, 3])


def numbers(count: int, bad: int | None = None) -> Iterator[Any]:
    for number in range(count):
        if number == bad:
            raise RuntimeError(f"cannot read {bad}")
        yield {"x": torch.tensor(number)}


def stream(count: int = 10, batch_size: int = 2, shuffle_buffer: int = 0, **options: Any) -> Any:
    return DataLoader.from_iterable(
        lambda: numbers(count), batch_size, shuffle_buffer, **{"drop_last": False, **options}
    )


def seen(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]


@DEPTHS
def test_batches_come_in_the_order_of_the_source(prefetch: int) -> None:
    with stream(5, prefetch=prefetch) as loader:
        batches = list(loader.epoch(2))
    assert [batch["x"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert [(batch.epoch, batch.index) for batch in batches] == [(2, 0), (2, 1), (2, 2)]
    assert loader.num_batches is None
    assert not loader.is_resident


def test_a_last_small_batch_is_dropped_by_default() -> None:
    loader = DataLoader.from_iterable(lambda: numbers(5), 2)
    assert [batch.size for batch in loader] == [2, 2]


def test_a_finished_epoch_leads_to_the_next() -> None:
    first = stream()
    list(first.epoch(4))
    second = stream()
    second.load_state_dict(first.state_dict())
    assert list(second.epoch(4)) == []
    third = stream()
    third.load_state_dict(first.state_dict())
    assert next(iter(third)).epoch == 5


@DEPTHS
def test_an_error_ends_the_epoch_at_its_batch(prefetch: int) -> None:
    loader = DataLoader.from_iterable(lambda: numbers(9, bad=5), 2, prefetch=prefetch)
    epoch = loader.epoch(0)
    assert seen([next(epoch), next(epoch)]) == [0, 1, 2, 3]
    with pytest.raises(DataWorkerError, match="epoch 0, batch 2: RuntimeError: cannot read 5"):
        next(epoch)
    assert list(epoch) == []


@DEPTHS
def test_another_epoch_makes_the_older_iterator_stale(prefetch: int) -> None:
    loader = stream(prefetch=prefetch)
    older = loader.epoch(0)
    next(older)
    newer = loader.epoch(1)
    with pytest.raises(StaleIteratorError, match="epoch 0: this iterator ended"):
        next(older)
    assert len(list(newer)) == 5
    loader.close()
    with pytest.raises(DataError, match="this loader is closed"):
        loader.epoch(2)


@DEPTHS
def test_abandoned_epochs_leave_no_thread(prefetch: int) -> None:
    before = set(threading.enumerate())
    loader = stream(20, prefetch=prefetch)
    for number in range(60):
        for taken, _ in enumerate(loader.epoch(number)):
            if taken == number % 8:
                break
    del loader
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_a_source_that_hangs_is_a_stall() -> None:
    may_end = threading.Event()

    def hangs() -> Iterator[Any]:
        yield torch.tensor(1)
        may_end.wait(30)

    epoch = DataLoader.from_iterable(hangs, 1, timeout=0.05).epoch(0)
    next(epoch)
    with pytest.raises(DataStallError, match="no batch within timeout=0.05 s"):
        next(epoch)
    may_end.set()


def test_transforms_work_before_and_after_the_device() -> None:
    loader = stream(
        4,
        device="meta",
        transform=lambda batch: batch.replace({"x": batch["x"] * 2.0}),
        device_transform=lambda batch: batch.to("meta", True),
    )
    assert [(batch["x"].dtype, batch["x"].device.type) for batch in loader] == [
        (torch.float32, "meta")
    ] * 2
