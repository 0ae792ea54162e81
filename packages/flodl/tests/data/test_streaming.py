from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError, DataWorkerError, SampleError
from flodl.data import Batch, DataLoader, TensorDataSet
from flodl.data.streaming import FetchSource


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


def test_prefetch_zero_reads_in_the_thread_that_iterates() -> None:
    data = Numbers(4)
    assert len(list(DataLoader(data, batch_size=1, prefetch=0).epoch(0))) == 4
    assert data.threads == {threading.current_thread().name}


def test_prefetch_reads_in_one_background_thread() -> None:
    data = Numbers(6)
    loader = DataLoader(data, batch_size=1, prefetch=2)
    data.threads.clear()
    assert len(list(loader.epoch(0))) == 6
    assert len(data.threads) == 1
    assert data.threads.pop().startswith("flodl-data")


def test_no_more_than_the_depth_is_read_ahead() -> None:
    data = Numbers(100)
    loader = DataLoader(data, batch_size=1, prefetch=3)
    data.reads = 0
    epoch = loader.epoch(0)
    for _ in range(10):
        next(epoch)
    epoch.close()
    assert 10 <= data.reads <= 13


def test_memory_can_be_loaded_ahead_when_asked_for() -> None:
    threads: set[str] = set()

    def note(batch: Batch) -> Batch:
        threads.add(threading.current_thread().name)
        return batch

    data = TensorDataSet(torch.arange(4))
    assert len(list(DataLoader(data, batch_size=2, prefetch=1, transform=note))) == 2
    assert threading.current_thread().name not in threads


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (lambda i: [i, i], "get_batch gave 2: for sample 0 it gave 1"),
        (lambda i: {"x": i}, "for sample 0 it gave 1"),
        (
            lambda i: [i.float()],
            r"gave '0' as torch.float32 \[2\] for 2 samples: expected torch.int64",
        ),
        (lambda i: [i[:1]], r"int64 \[1\] for 2 samples: expected torch.int64 with 2 rows"),
        (lambda i: [i.sum()], r"int64 \[\] for 2 samples: expected torch.int64 with 2 rows"),
    ],
)
def test_a_batch_unlike_the_first_sample_is_refused(later: Any, says: str) -> None:
    class Changing(Numbers):
        def get_batch(self, indices: torch.Tensor) -> Any:
            return [indices] if indices.numel() == 1 else later(indices)

    loader = DataLoader(Changing(4), batch_size=2, prefetch=0)
    with pytest.raises(DataWorkerError, match=says) as caught:
        next(loader.epoch(0))
    assert isinstance(caught.value.__cause__, SampleError)


def test_dict_batches_may_change_the_order_of_their_keys() -> None:
    class Turning(Numbers):
        def get_batch(self, indices: torch.Tensor) -> Any:
            pairs = [("x", indices), ("y", indices * 10)]
            return dict(pairs if indices.numel() == 1 else reversed(pairs))

    batch = next(DataLoader(Turning(4), batch_size=2, shuffle=False, prefetch=0).epoch(0))
    assert {name: part.tolist() for name, part in batch.as_dict().items()} == {
        "x": [0, 1],
        "y": [0, 10],
    }


def test_keys_of_batches_win_over_declared_names() -> None:
    class Named(Numbers):
        names = ("a", "b")

        def get_batch(self, indices: torch.Tensor) -> Any:
            return {"b": indices, "a": indices}

    assert FetchSource(Named(3)).names == ("b", "a")


def test_names_for_another_number_of_tensors_are_refused_unless_the_loader_has_its_own() -> None:
    class Files(Numbers):
        names = ("one.png", "two.png", "three.png")

    with pytest.raises(ConfigError, match="3 names for 1 tensors"):
        DataLoader(Files(3), batch_size=1)
    assert DataLoader(Files(3), batch_size=1, names=["x"]).names == ("x",)


def test_a_first_sample_without_tensors_is_refused() -> None:
    class Nothing(Numbers):
        def get_batch(self, indices: torch.Tensor) -> Any:
            return []

    with pytest.raises(SampleError, match="gave no tensors for sample 0"):
        FetchSource(Nothing(3))


@pytest.mark.parametrize("given", [None, ["text"]])
def test_what_is_no_tensor_is_named_with_what_gave_it(given: Any) -> None:
    class Odd:
        def __len__(self) -> int:
            return 4

        def get_batch(self, indices: torch.Tensor) -> Any:
            return given

    with pytest.raises(SampleError, match=r"get_batch gave a (NoneType|str), which is no tensor"):
        DataLoader(Odd(), batch_size=2)
    with pytest.raises(SampleError, match=r"collate gave a (NoneType|str), which is no tensor"):
        DataLoader([torch.zeros(1)] * 4, batch_size=2, collate=lambda samples: given)
