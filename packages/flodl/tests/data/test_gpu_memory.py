"""Loaders on a real GPU that is nearly full."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flodl.core.errors import DataWorkerError
from flodl.data import DataLoader, TensorDataSet
from flodl.device import gpu_empty_cache, gpu_memory_info

pytestmark = pytest.mark.cuda


def data(count: int, width: int) -> TensorDataSet:
    rows = torch.arange(count)
    return TensorDataSet(x=rows.unsqueeze(1).float().expand(-1, width).contiguous(), y=rows)


def rows(loader: Any, epoch: int = 0) -> list[list[int]]:
    batches = list(loader.epoch(epoch))
    assert all(batch[0].is_cuda for batch in batches)
    assert all(batch["x"][:, 0].tolist() == batch["y"].tolist() for batch in batches)
    return [batch["y"].tolist() for batch in batches]


def fill_up() -> list[torch.Tensor]:
    """Take all memory that torch may still have, but for pieces of less than 64 KiB."""
    taken = []
    for size in (1 << 26, 1 << 24, 1 << 22, 1 << 21, 1 << 20, 1 << 18, 1 << 16):
        try:
            while True:
                taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            continue
    return taken


def limit_torch_to(n_bytes: int) -> None:
    torch.cuda.set_per_process_memory_fraction(min(1.0, n_bytes / gpu_memory_info().total))


@pytest.fixture
def little_memory() -> Iterator[int]:
    """Let torch take 64 MiB more than it has; what it holds for reuse is filled up.

    Earlier tests leave free pieces in segments that cannot be given back, and pools of graphs that
    nobody else may use: so the limit is set from what is reserved when nothing is free.
    """
    gc.collect()
    torch.cuda.synchronize()
    gpu_empty_cache()
    limit_torch_to(gpu_memory_info().reserved)
    held = fill_up()
    room = 64 << 20
    limit_torch_to(gpu_memory_info().reserved + room)
    yield room
    held.clear()
    limit_torch_to(gpu_memory_info().total)
    gpu_empty_cache()


def test_the_fixture_leaves_as_much_memory_as_it_says(little_memory: int) -> None:
    taken = sum(tensor.nbytes for tensor in fill_up())
    assert abs(taken - little_memory) <= 4 << 20


def test_a_set_that_does_not_fit_after_all_is_streamed_within_two_seconds(
    little_memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    begun = time.perf_counter()
    with caplog.at_level(logging.WARNING, "flodl"):
        loader = DataLoader(data(4096, 1 << 13), batch_size=64, device="cuda")  # 128 MiB
        epoch = loader.epoch(0)
        first = next(epoch)
    assert time.perf_counter() - begun < 2
    assert not loader.is_resident
    assert "ran out of memory while it was loaded" in caplog.text
    seen = first["y"].tolist() + [y for batch in epoch for y in batch["y"].tolist()]
    assert sorted(seen) == list(range(4096))
    with pytest.raises(torch.OutOfMemoryError):
        DataLoader(data(4096, 1 << 13), batch_size=64, device="cuda", resident=True)


def test_a_gather_without_memory_loses_no_sample(
    little_memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    loader = DataLoader(data(1024, 1 << 13), batch_size=64, device="cuda")  # 32 MiB
    assert loader.is_resident
    epoch = loader.epoch(0)
    seen = [y for _ in range(5) for y in next(epoch)["y"].tolist()]
    hog = fill_up()  # what a growing model would do
    with caplog.at_level(logging.WARNING, "flodl"):
        for batch in epoch:
            seen += batch["y"].tolist()
            del batch
    assert "ran out of memory while a batch was gathered" in caplog.text
    assert sorted(seen) == list(range(1024))
    assert not loader.is_resident
    hog.clear()
    assert len(rows(loader, 1)) == 16


def test_a_full_gpu_while_streaming_holds_batches_back(
    little_memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    loader = DataLoader(  # 8 batches of 16 MiB, of which 4 fit
        data(4096, 1 << 13), batch_size=512, device="cuda", streaming=True, prefetch=8
    )
    seen = []
    with caplog.at_level(logging.WARNING, "flodl"):
        epoch = loader.epoch(0)
        feed: Any = epoch._feed
        for _, future in feed._ahead._pending:
            future.exception(30)
        for batch in epoch:
            seen += batch["y"].tolist()
            del batch
    assert sorted(seen) == list(range(4096))
    assert "has no memory for another batch" in caplog.text
    assert loader.prefetch_depth < 8


def test_a_batch_that_never_fits_is_an_error(little_memory: int) -> None:
    loader = DataLoader(
        data(1024, 1 << 15), batch_size=1024, device="cuda", streaming=True, prefetch=2
    )
    with pytest.raises(DataWorkerError, match="batch 0 .*OutOfMemoryError"):
        next(loader.epoch(0))


def test_a_closed_loader_gives_its_memory_back() -> None:
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    loader = DataLoader(data(1024, 1 << 12), batch_size=8, device="cuda")
    list(loader.epoch(0))
    assert torch.cuda.memory_allocated() > before
    loader.close()
    assert torch.cuda.memory_allocated() == before
