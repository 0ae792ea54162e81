from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError, DataWorkerError, SampleError
from flodl.data import Concat, DataLoader, Repeat, Subset, residency
from flodl.data.residency import fits_gpu, fits_host
from flodl.device import MemoryInfo

GIB = 1 << 30


def memory(*, free: int, reserved: int = 0, allocated: int = 0) -> MemoryInfo:
    return MemoryInfo(
        total=100 * GIB,
        free=free * GIB,
        used=(100 - free) * GIB,
        reserved=reserved * GIB,
        allocated=allocated * GIB,
    )


@pytest.mark.parametrize(
    ("found", "need", "cap", "fits"),
    [
        (memory(free=80), 60, 0.9, True),  # 75% of 80
        (memory(free=80), 61, 0.9, False),
        (memory(free=40), 30, 0.9, True),  # 60 + 30 = 90%
        (memory(free=40), 30, 0.89, False),
        (memory(free=40, reserved=20), 45, 0.9, True),  # cached blocks count as free
        (memory(free=40, reserved=20, allocated=10), 45, 0.9, False),  # unless they are in use
    ],
)
def test_both_limits_of_a_gpu_must_hold(
    found: MemoryInfo, need: int, cap: float, fits: bool
) -> None:
    assert fits_gpu(need * GIB, found, cap).is_resident == fits


def test_the_reason_gives_the_numbers() -> None:
    assert fits_gpu(70 * GIB, memory(free=80), 0.9).reason == (
        "70.0 GB of data is more than 75% of the 80.0 GB free"
    )
    assert fits_gpu(30 * GIB, memory(free=40), 0.8).reason == (
        "30.0 GB of data beside 60.0 GB in use is more than 80% of 100.0 GB"
    )
    assert (
        fits_host(3 * GIB, 4 * GIB).reason
        == "3.0 GB of data is more than 50% of the 4.0 GB available"
    )
    assert fits_host(2 * GIB, 4 * GIB).is_resident


class Fetched:
    """Numbers read through ``get_batch``, the same at every read; counts the reads."""

    is_fixed = True

    def __init__(self, count: int = 10) -> None:
        self.count = count
        self.reads = 0

    def __len__(self) -> int:
        return self.count

    def get_batch(self, indices: torch.Tensor) -> Any:
        self.reads += 1
        return {"x": indices, "y": indices.float().unsqueeze(1).expand(-1, 3)}


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set what the host has; by default plenty."""

    def give(available: int) -> None:
        monkeypatch.setattr(residency, "host_memory", lambda: (0, available))

    give(GIB)
    return give


def values(loader: DataLoader) -> list[Any]:
    return [(b["x"].tolist(), b["y"].tolist()) for e in range(2) for b in loader.epoch(e)]


def test_a_fixed_set_that_fits_is_read_once_and_kept(room: Any) -> None:
    data = Fetched()
    loader = DataLoader(data, batch_size=3)
    reads = data.reads
    assert loader.is_resident
    kept = values(loader)
    assert data.reads == reads
    streamed = DataLoader(Fetched(), batch_size=3, streaming=True)
    assert not streamed.is_resident
    assert values(streamed) == kept
    assert loader.names == ("x", "y")


def test_a_fixed_set_that_does_not_fit_is_streamed(room: Any) -> None:
    room(30)
    loader = DataLoader(Fetched(), batch_size=3)
    assert not loader.is_resident
    assert "200 B of data is more than 50% of the 30 B available" in loader.summary()


def test_a_set_that_may_differ_from_read_to_read_is_not_kept_unless_told(room: Any) -> None:
    class Random(Fetched):
        is_fixed = False

    assert not DataLoader(Random(), batch_size=3).is_resident
    assert DataLoader(Random(), batch_size=3, resident=True).is_resident


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        (Subset(Fetched(), [1, 2]), True),
        (Repeat(Fetched(), 30), True),
        (Concat([Fetched(), Fetched()]), True),
        (Concat([Fetched(), [1, 2]]), False),
    ],
)
def test_composed_sets_are_as_fixed_as_their_parts(made: Any, fixed: bool) -> None:
    assert made.is_fixed == fixed


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"streaming": True}, "streaming=True"),
        ({"resident": False}, "resident=False"),
        ({"collate": list}, "collate forms each batch"),
        ({"worker_mode": "process"}, 'worker_mode="process"'),
    ],
)
def test_what_keeps_a_set_from_being_kept_is_the_reason(
    options: Any, reason: str, room: Any
) -> None:
    class Items(Fetched):
        def get(self, index: int) -> Any:
            return [torch.tensor(index)]

    if "collate" in options:
        options = {"collate": lambda samples: [torch.stack([sample[0] for sample in samples])]}
    loader = DataLoader(Items(), batch_size=3, **options)
    assert not loader.is_resident
    assert f": {reason};" in loader.summary()


def test_a_device_without_known_memory_is_streamed_to() -> None:
    loader = DataLoader(Fetched(), batch_size=5, device="meta")
    assert "the memory of meta devices is not known" in loader.summary()
    assert next(loader.epoch(0))["x"].device.type == "meta"


def test_a_set_with_a_transform_on_the_cpu_cannot_be_forced_onto_a_device() -> None:
    with pytest.raises(ConfigError, match="resident=True with transform"):
        DataLoader(Fetched(), batch_size=5, device="meta", resident=True, transform=lambda b: b)


def test_a_read_that_fails_while_the_set_is_loaded_names_the_samples(room: Any) -> None:
    class Broken(Fetched):
        def get_batch(self, indices: torch.Tensor) -> Any:
            if indices.numel() > 1:
                raise OSError("disk gone")
            return super().get_batch(indices)

    with pytest.raises(DataWorkerError, match="whole set, samples 0 to 9: OSError: disk gone"):
        DataLoader(Broken(), batch_size=3)


def test_samples_of_other_shapes_cannot_be_kept(room: Any) -> None:
    class Ragged(Fetched):
        def get_batch(self, indices: torch.Tensor) -> Any:
            width = 1 if indices.numel() == 1 else 2
            return [indices.unsqueeze(1).expand(-1, width)]

    with pytest.raises(SampleError, match=r"samples 0 to 9 are torch.int64 \[2\]: sample 0 is"):
        DataLoader(Ragged(), batch_size=3)
