"""Running out of device memory, with devices that only pretend: no sample is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from flodl.core.errors import DataStallError, DataWorkerError
from flodl.data import Batch, DataLoader, Lease, TensorDataSet
from flodl.data.resident import DeviceStore
from flodl.data.transfer import Sent

OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


class FullDevice:
    """A transfer whose device has no memory the first times that it is sent some batches."""

    def __init__(self, *full: int, times: int = 1) -> None:
        self.left = dict.fromkeys(full, times)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def send(self, batch: Batch) -> Sent:
        if self.left.get(batch.index, 0):
            self.left[batch.index] -= 1
            raise OOM
        return Sent(batch)

    def receive(self, sent: Sent) -> Batch:
        return sent.batch


def streaming(transfer: FullDevice, count: int = 12, **options: Any) -> DataLoader:
    data = TensorDataSet(x=torch.arange(count))
    loader = DataLoader(data, batch_size=2, shuffle=False, streaming=True, **options)
    loader._delivery._transfer = transfer
    return loader


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("full", [(0,), (1, 2), (5,), (0, 2, 4)])
def test_a_full_device_holds_batches_back_and_loses_none(
    prefetch: int, full: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    loader = streaming(FullDevice(*full), prefetch=prefetch)
    with caplog.at_level(logging.WARNING, "flodl"):
        found = [x for batch in loader.epoch(0) for x in batch["x"].tolist()]
    assert found == list(range(12))
    assert "the device has no memory for another batch; loading" in caplog.text


def test_each_time_the_device_is_full_the_depth_halves() -> None:
    loader = streaming(FullDevice(0), prefetch=8)
    list(loader.epoch(0))
    assert loader.prefetch_depth == 4


def test_a_device_that_stays_full_ends_the_epoch_with_the_batch_named() -> None:
    loader = streaming(FullDevice(1, times=2), prefetch=2)
    epoch = loader.epoch(0)
    assert next(epoch)["x"].tolist() == [0, 1]
    with pytest.raises(DataWorkerError, match=r"batch 1 \(samples 2, 3\): OutOfMemoryError: CUDA"):
        next(epoch)
    assert list(epoch) == []


def resident(monkeypatch: pytest.MonkeyPatch, full: set[int], **options: Any) -> DataLoader:
    """A loader whose set is on a device that runs out of memory at some gathers."""
    gather, calls = DeviceStore.gather, []

    def limited(self: DeviceStore, job: Any) -> Any:
        calls.append(job)
        if len(calls) in full:
            raise OOM
        return gather(self, job)

    monkeypatch.setattr(DeviceStore, "gather", limited)
    # "meta" stands for a GPU: the set is kept there, and batches have shapes without values
    data = TensorDataSet(x=torch.arange(13))
    return DataLoader(data, batch_size=2, device="meta", **options)


@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_gather_without_memory_goes_on_streaming_at_the_same_batch(
    at: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[int, int]] = []

    def note(batch: Batch) -> Batch:
        seen.append((batch.epoch, batch.index))
        return batch

    loader = resident(monkeypatch, {at}, resident=True, drop_last=False, device_transform=note)
    # resident=True is how a set gets onto a device of unknown memory; the fallback is that of auto
    object.__setattr__(loader._config, "resident", None)
    host_rows: list[int] = []
    read = loader._delivery._read

    def reading(job: Any) -> Batch:
        host_rows.extend(job.host_rows.tolist())
        return read(job)

    monkeypatch.setattr(loader._delivery, "_read", reading)
    with caplog.at_level(logging.WARNING, "flodl"):
        assert loader.is_resident
        sizes = [batch.size for batch in loader.epoch(0)]
    assert sizes == [2] * 6 + [1]
    assert seen == [(0, index) for index in range(7)]
    order = loader._position.order(0).tolist()
    assert host_rows == order[(at - 1) * 2 :]
    assert not loader.is_resident
    assert loader.store is None
    assert "ran out of memory while a batch was gathered: CUDA out of memory" in caplog.text
    assert [batch.size for batch in loader.epoch(1)] == sizes


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_leases_go_on_when_a_gather_finds_no_memory(
    at: int, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = resident(monkeypatch, {at}, resident=True, prefetch=prefetch)
    object.__setattr__(loader._config, "resident", None)
    feed = loader.leases()
    feed.assign(Lease(lease_id=1, epoch=0, ranges=((0, 5),)))
    feed.assign(Lease(lease_id=2, epoch=1, ranges=((4, 13),)))
    taken = []
    for _ in range(5):
        batch = feed.take()
        assert batch is not None
        taken.append((batch.lease_id, batch.epoch, batch.ranges))
    assert taken == [
        (1, 0, ((0, 2),)),
        (1, 0, ((2, 4),)),
        (1, 0, ((4, 5),)),
        (2, 1, ((4, 6),)),
        (2, 1, ((6, 8),)),
    ]
    assert not loader.is_resident
    assert feed.cut(2) == ((8, 13),)
    feed.assign(Lease(lease_id=3, epoch=1, ranges=((0, 2),)))
    last = feed.take()
    assert last is not None
    assert (last.lease_id, last.ranges, feed.take()) == (3, ((0, 2),), None)
    feed.close()


def test_a_set_that_must_be_resident_makes_it_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = resident(monkeypatch, {2}, resident=True)
    epoch = loader.epoch(0)
    next(epoch)
    with pytest.raises(DataWorkerError, match="batch 1 .*OutOfMemoryError"):
        next(epoch)


@pytest.mark.parametrize("forced", [True, False])
def test_a_set_that_cannot_be_loaded_is_streamed_unless_it_must_be_resident(
    forced: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from flodl.data import delivery
    from flodl.data.residency import Decision

    def no_room(*_: Any) -> Any:
        raise RuntimeError("wrapped") from OOM

    monkeypatch.setattr(delivery, "DeviceStore", no_room)
    monkeypatch.setattr(
        delivery, "decide", lambda *_, **__: Decision(is_resident=True, reason="it fits")
    )
    data = TensorDataSet(x=torch.arange(8))
    options: dict[str, Any] = {"resident": True} if forced else {}
    if forced:
        with pytest.raises(RuntimeError, match="wrapped"):
            DataLoader(data, batch_size=2, device="meta", **options)
        return
    loader = DataLoader(data, batch_size=2, device="meta")
    assert not loader.is_resident
    assert "ran out of memory while it was loaded: wrapped" in caplog.text
    assert "the device ran out of memory" in loader.summary()
    assert len(list(loader.epoch(0))) == 4


def test_a_stalled_read_ends_the_epoch_and_not_the_process() -> None:
    may_end = threading.Event()

    class Hangs:
        def __len__(self) -> int:
            return 6

        def get_batch(self, indices: torch.Tensor) -> Any:
            if 3 in indices.tolist():
                may_end.wait(30)
            return [indices]

    loader = DataLoader(Hangs(), batch_size=1, shuffle=False, timeout=0.05)
    epoch = loader.epoch(0)
    assert [next(epoch)[0].item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataStallError, match=r"epoch 0, batch 3 \(samples 3\): no batch within"):
        next(epoch)
    assert list(epoch) == []
    may_end.set()
    assert len(list(loader.epoch(1))) == 6
