"""Two thousand epochs left at random points leave no thread, no open file and no memory."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from flodl.data import DataLoader, Lease, MemmapDataSet, TarStream, TensorDataSet

EPOCHS = 2000
WARM_UP = 200

pytestmark = pytest.mark.slow


class Items:
    """Rows of 64 KB, one at a time."""

    def __len__(self) -> int:
        return 64

    def get(self, index: int) -> torch.Tensor:
        return torch.full((16 * 1024,), float(index))

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(self.get, range(64))


def memmap(folder: Path) -> Any:
    np.save(folder / "x.npy", np.zeros((64, 16 * 1024), dtype=np.float32))
    return DataLoader(MemmapDataSet({"x": folder / "x.npy"}), batch_size=2, streaming=True)


def tar(folder: Path) -> Any:
    import io
    import tarfile

    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(64):
            info = tarfile.TarInfo(f"{number}.x")
            info.size = 64 * 1024
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    stream = TarStream(
        [folder / "a.tar"], {"x": lambda data: torch.frombuffer(bytearray(data), dtype=torch.uint8)}
    )
    return DataLoader.from_iterable(stream, 2)


class Leased:
    """Epochs of one loader as leases, of which what is not taken is given back."""

    def __init__(self, **options: Any) -> None:
        self._loader = DataLoader(Items(), batch_size=2, **options)
        self.close = self._loader.close

    def epoch(self, number: int) -> Iterator[Any]:
        feed = self._loader.leases()
        for part in range(4):
            ranges = ((16 * part, 16 * part + 16),)
            feed.assign(Lease(lease_id=4 * number + part, epoch=number, ranges=ranges))
        try:
            while (batch := feed.take()) is not None:
                yield batch
        finally:
            feed.give_back()
            if number % 3 == 0:
                feed.close()


MAKE: dict[str, Any] = {
    "items": lambda _: DataLoader(Items(), batch_size=2, prefetch=3),
    "several threads": lambda _: DataLoader(Items(), batch_size=2, prefetch=6, workers=3),
    "caller's thread": lambda _: DataLoader(Items(), batch_size=2, prefetch=0),
    "in memory": lambda _: DataLoader(
        TensorDataSet(torch.zeros(64, 16 * 1024)), batch_size=2, prefetch=2
    ),
    "processes": lambda _: DataLoader(Items(), batch_size=2, worker_mode="process", workers=2),
    "leases": lambda _: Leased(prefetch=3),
    "leases in the caller's thread": lambda _: Leased(prefetch=0),
    "memmap": memmap,
    "tar": tar,
    "stream in processes": lambda _: DataLoader.from_iterable(Items(), 2, workers=2),
    "epoch function": lambda _: DataLoader.from_epoch_fn(
        lambda epoch: torch.full((64, 1024), float(epoch)), 2
    ),
}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("kind", MAKE)
def test_abandoned_epochs_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    process, draw = psutil.Process(), random.Random(0)
    threads_before = set(threading.enumerate())
    loader = MAKE[kind](tmp_path)
    files = memory = 0
    for number in range(EPOCHS):
        leave_at = draw.randrange(6)
        iterator = loader.epoch(number)
        for taken, _ in enumerate(iterator):
            if taken == leave_at:
                break
        if draw.random() < 0.3:
            iterator.close()
        del iterator
        if number == WARM_UP:
            gc.collect()
            files, memory = open_files(), process.memory_info().rss
    loader.close()
    del loader
    gc.collect()
    for thread in set(threading.enumerate()) - threads_before:
        thread.join(10)
        assert not thread.is_alive()
    # a leak would be one for each of the epochs; others in the process may open a file meanwhile
    assert open_files() < files + 10
    assert process.memory_info().rss - memory < 48 << 20
    assert not process.children()
