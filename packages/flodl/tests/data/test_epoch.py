from __future__ import annotations

import gc
import threading
import traceback
from typing import Any

import pytest
import torch

from flodl.core.errors import DataWorkerError, StaleIteratorError
from flodl.data import DataLoader

DEPTHS = pytest.mark.parametrize("prefetch", [0, 1, 3])


class Numbers:
    """Numbers through ``get_batch``; reading ``bad`` raises; every read is counted."""

    def __init__(self, count: int, bad: int | None = None) -> None:
        self._count = count
        self._bad = bad
        self.threads: set[str] = set()
        self.reads = 0

    def __len__(self) -> int:
        return self._count

    def get_batch(self, indices: torch.Tensor) -> Any:
        self.reads += 1
        self.threads.add(threading.current_thread().name)
        if self._bad in indices.tolist():
            raise RuntimeError(f"cannot read {self._bad}")
        return [indices]


@DEPTHS
def test_len_counts_down_to_zero(prefetch: int) -> None:
    epoch = DataLoader(Numbers(4), batch_size=1, prefetch=prefetch).epoch(0)
    left = [len(epoch)]
    for _ in epoch:
        left.append(len(epoch))
    assert left == [4, 3, 2, 1, 0]
    assert list(epoch) == []


@DEPTHS
def test_an_error_ends_the_epoch_at_its_batch_with_the_original_traceback(prefetch: int) -> None:
    loader = DataLoader(Numbers(6, bad=4), batch_size=2, shuffle=False, prefetch=prefetch)
    epoch = loader.epoch(5)
    assert [next(epoch)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(DataWorkerError) as caught:
        next(epoch)
    assert str(caught.value) == ("epoch 5, batch 2 (samples 4, 5): RuntimeError: cannot read 4")
    assert isinstance(caught.value.__cause__, RuntimeError)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)]
    assert frames[-1] == "get_batch"
    assert (list(epoch), len(epoch)) == ([], 0)


@DEPTHS
def test_after_an_error_the_loader_starts_again(prefetch: int) -> None:
    loader = DataLoader(Numbers(3, bad=2), batch_size=1, shuffle=False, prefetch=prefetch)
    for _ in range(2):
        with pytest.raises(DataWorkerError, match="batch 2"):
            list(loader.epoch(0))


def test_long_batches_name_their_first_samples_only() -> None:
    loader = DataLoader(Numbers(20, bad=19), batch_size=20, shuffle=False, prefetch=0)
    with pytest.raises(DataWorkerError, match=r"\(samples 0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\)"):
        next(loader.epoch(0))


@DEPTHS
def test_another_epoch_makes_the_older_iterator_stale(prefetch: int) -> None:
    loader = DataLoader(Numbers(4), batch_size=1, prefetch=prefetch)
    older = loader.epoch(0)
    next(older)
    newer = loader.epoch(1)
    with pytest.raises(StaleIteratorError, match="epoch 0: this iterator ended"):
        next(older)
    assert len(list(newer)) == 4


def test_a_finished_iterator_stays_finished_rather_than_stale() -> None:
    loader = DataLoader(Numbers(2), batch_size=1, prefetch=0)
    older = loader.epoch(0)
    list(older)
    loader.epoch(1)
    assert list(older) == []


@DEPTHS
def test_closing_ends_the_epoch_and_its_thread(prefetch: int) -> None:
    before = threading.active_count()
    epoch = DataLoader(Numbers(9), batch_size=1, prefetch=prefetch).epoch(0)
    next(epoch)
    epoch.close()
    epoch.close()
    assert threading.active_count() == before
    assert (list(epoch), len(epoch)) == ([], 0)


@DEPTHS
def test_a_hundred_abandoned_epochs_leave_no_thread(prefetch: int) -> None:
    before = set(threading.enumerate())
    loader = DataLoader(Numbers(8), batch_size=1, prefetch=prefetch)
    for number in range(100):
        for taken, _ in enumerate(loader.epoch(number)):
            if taken == number % 8:
                break
    del loader
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_fifty_used_loaders_leave_no_thread() -> None:
    before = threading.active_count()
    for _ in range(50):
        assert len(list(DataLoader(Numbers(3), batch_size=1).epoch(0))) == 3
    assert threading.active_count() == before


@DEPTHS
@pytest.mark.parametrize("option", ["transform", "device_transform"])
def test_a_transform_that_forgets_to_return_is_named(prefetch: int, option: str) -> None:
    options: dict[str, Any] = {option: lambda batch: None}
    loader = DataLoader(Numbers(2), batch_size=1, prefetch=prefetch, **options)
    with pytest.raises(DataWorkerError, match=f"{option} returned a NoneType: expected a flodl"):
        next(loader.epoch(0))
