"""Loaders with a real GPU: where batches arrive, and what overlaps."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flodl.data import DataLoader, Lease, RandomSampler, TensorDataSet
from flodl.device import CaptureMode, GpuGraph

pytestmark = pytest.mark.cuda

COUNT = 103


def data(count: int = COUNT, width: int = 5) -> TensorDataSet:
    rows = torch.arange(count)
    return TensorDataSet(x=rows.unsqueeze(1).float().expand(-1, width).contiguous(), y=rows)


class Items:
    def __len__(self) -> int:
        return COUNT

    def get(self, index: int) -> Any:
        return {"x": torch.full((5,), float(index)), "y": torch.tensor(index)}


def rows(loader: Any, epoch: int = 0) -> list[list[int]]:
    batches = list(loader.epoch(epoch))
    assert all(batch[0].is_cuda for batch in batches)
    assert all(batch["x"][:, 0].tolist() == batch["y"].tolist() for batch in batches)
    return [batch["y"].tolist() for batch in batches]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_resident_streaming_and_plain_batches_are_equal(shuffle: bool, drop_last: bool) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": shuffle, "drop_last": drop_last}
    kept = DataLoader(data(), device="cuda", **options)
    assert kept.is_resident
    assert kept.store is not None
    assert kept.store.tensors[0].is_cuda
    others = [
        DataLoader(data(), device="cuda", streaming=True, **options),
        DataLoader(Items(), device="cuda", **options),
        DataLoader(Items(), device="cuda", prefetch=0, **options),
        DataLoader(Items(), device="cuda", workers=3, **options),
        DataLoader(Items(), device="cuda", resident=True, **options),
    ]
    plain = DataLoader(data(), **options)
    for epoch in range(3):
        expected = [batch["y"].tolist() for batch in plain.epoch(epoch)]
        assert rows(kept, epoch) == expected
        for other in others:
            assert rows(other, epoch) == expected


def test_batches_of_a_resident_set_can_be_written_to() -> None:
    for shuffle in (False, True):
        loader = DataLoader(data(), batch_size=8, device="cuda", shuffle=shuffle)
        expected = rows(loader)
        for batch in loader.epoch(0):
            batch["x"].zero_(), batch["y"].zero_()
        assert rows(loader) == expected


def test_the_order_of_an_epoch_stays_in_one_place() -> None:
    loader = DataLoader(data(), batch_size=8, device="cuda")
    list(loader.epoch(0))
    assert loader.store is not None
    place = loader.store.order.data_ptr()
    for epoch in range(1, 4):
        found = rows(loader, epoch)
        assert loader.store.order.data_ptr() == place
        flat = [row for batch in found for row in batch]
        assert loader.store.order[: len(flat)].tolist() == flat


def test_leases_come_from_the_set_on_the_device() -> None:
    loader = DataLoader(data(), batch_size=8, device="cuda", shuffle=False)
    feed = loader.leases()
    feed.assign(Lease(lease_id=1, epoch=0, ranges=((0, 10),)))
    feed.assign(Lease(lease_id=2, epoch=1, ranges=((90, 103),)))
    found = []
    while (batch := feed.take()) is not None:
        found.append((batch.lease_id, batch["y"].tolist()))
    assert [lease for lease, _ in found] == [1, 1, 2, 2]
    assert [y for _, ys in found for y in ys] == [*range(10), *range(90, 103)]


def test_copies_arrive_while_the_gpu_computes_and_the_host_does_not_wait() -> None:
    loader = DataLoader(
        data(64, 1 << 18), batch_size=8, device="cuda", streaming=True, prefetch=3, shuffle=False
    )
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)  # about half a second
    busy = torch.cuda.Event()
    busy.record()
    epoch = loader.epoch(0)
    feed: Any = epoch._feed
    sent = [future.result(30) for _, future in feed._ahead._pending]
    arrived, deadline = [item.arrived for item in sent], time.monotonic() + 30
    while not all(event.is_complete() for event in arrived) and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    batch = next(epoch)
    assert not busy.query()
    assert batch["x"].is_cuda
    torch.cuda.synchronize()
    assert batch["y"].tolist() == list(range(8))
    epoch.close()


def test_memory_of_a_batch_is_not_reused_while_it_is_read() -> None:
    loader = DataLoader(
        data(512, 1 << 12), batch_size=8, device="cuda", streaming=True, prefetch=4, shuffle=False
    )
    sums = []
    for batch in loader.epoch(0):
        torch.cuda._sleep(2_000_000)
        sums.append(batch["x"].sum())
        del batch
    expected = [sum(range(start, start + 8)) * 4096.0 for start in range(0, 512, 8)]
    assert torch.stack(sums).tolist() == expected


def test_a_loader_streams_while_another_thread_captures() -> None:
    loader = DataLoader(Items(), batch_size=8, device="cuda", prefetch=2, shuffle=False)
    target = torch.zeros(4, device="cuda")
    epoch = loader.epoch(0)
    first = next(epoch)
    graph = GpuGraph()
    with graph.capture(mode=CaptureMode.THREAD_LOCAL):
        target.add_(1)
        feed: Any = epoch._feed
        for _, future in feed._ahead._pending:
            future.result(30)
    graph.replay()
    torch.cuda.synchronize()
    assert target.tolist() == [1.0] * 4
    assert [first["y"].tolist(), *[batch["y"].tolist() for batch in epoch]] == [
        list(range(start, start + 8)) for start in range(0, 96, 8)
    ]


def test_the_depth_is_measured_once_the_model_is_there() -> None:
    loader = DataLoader(data(), batch_size=2, device="cuda", streaming=True)
    assert loader.prefetch_depth == 4
    list(loader.epoch(0))
    assert loader.prefetch_depth == loader.num_batches
    assert loader.auto_resize() == loader.num_batches
    small = DataLoader(
        data(), batch_size=2, device="cuda", streaming=True, activation_reserve=1 << 50
    )
    list(small.epoch(0))
    assert small.prefetch_depth == 2


@pytest.mark.parametrize("options", [{}, {"streaming": True}, {"streaming": True, "workers": 3}])
def test_abandoned_epochs_leave_nothing_on_the_gpu(options: Any) -> None:
    loader = DataLoader(data(512, 1 << 10), batch_size=8, device="cuda", prefetch=4, **options)
    draw = random.Random(0)
    before = 0
    for number in range(300):
        iterator = loader.epoch(number)
        for _, batch in zip(range(draw.randrange(6)), iterator, strict=False):
            assert batch["x"].is_cuda
        batch = None
        if draw.random() < 0.5:
            iterator.close()
        del iterator
        if number == 50:
            before = settled_bytes()
    assert settled_bytes() <= before + (1 << 20)
    loader.close()


def settled_bytes() -> int:
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("flodl-data"):
            thread.join(30)
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def test_pinned_batches_on_the_host_are_page_locked() -> None:
    batch = next(DataLoader(Items(), batch_size=4, pin=True).epoch(0))
    assert batch["x"].is_pinned()


def test_page_locked_memory_under_way_is_bounded() -> None:
    loader = DataLoader(
        data(256, 1 << 14),
        batch_size=8,
        device="cuda",
        streaming=True,
        prefetch=16,
        max_pinned_bytes=1 << 20,
    )
    assert sorted(y for batch in rows(loader) for y in batch) == list(range(256))
    transfer: Any = loader._delivery._transfer
    assert transfer._pinned_bytes <= 1 << 20


def test_an_epoch_function_fills_two_buffers_in_place() -> None:
    def fn(epoch: int) -> dict[str, torch.Tensor]:
        values = torch.arange(40) + 1000 * epoch
        return {"x": values.float().unsqueeze(1), "y": values}

    with DataLoader.from_epoch_fn(fn, 8, device="cuda") as loader:
        assert loader.is_resident
        place = [buffer.data_ptr() for buffer in loader.buffers]
        for epoch in range(5):
            found = rows(loader, epoch)
            expected = [1000 * epoch + n for n in range(40)]
            assert sorted(y for batch in found for y in batch) == expected
            assert loader.active.item() == epoch % 2
        assert [buffer.data_ptr() for buffer in loader.buffers] == place


def test_a_stream_arrives_on_the_gpu() -> None:
    def numbers() -> Iterator[Any]:
        for number in range(20):
            yield {"x": torch.full((3,), float(number)), "y": torch.tensor(number)}

    loader = DataLoader.from_iterable(numbers, 4, device="cuda")
    assert rows(loader) == [list(range(start, start + 4)) for start in range(0, 20, 4)]


def test_a_smaller_dtype_takes_less_of_the_gpu_and_gives_the_same_in_both_modes() -> None:
    options: dict[str, Any] = {"batch_size": 8, "device": "cuda", "storage_dtype": torch.float16}
    kept = DataLoader(data(), **options)
    streamed = DataLoader(data(), streaming=True, **options)
    assert kept.store is not None
    assert kept.store.tensors[0].dtype == torch.float16
    for a, b in zip(kept.epoch(0), streamed.epoch(0), strict=True):
        assert a["x"].dtype == torch.float16
        assert torch.equal(a["x"], b["x"])
        assert torch.equal(a["y"], b["y"])


def test_a_rank_holds_its_part_on_the_gpu() -> None:
    seen: list[int] = []
    for rank in range(2):
        loader = DataLoader(
            data(), batch_size=8, device="cuda", resident="partition", drop_last=False
        )
        loader.partition(rank, 2, uneven="allow")
        seen += [y for batch in rows(loader) for y in batch]
        assert loader.store is not None
        assert loader.store.tensors[0].shape[0] == COUNT // 2 + (rank < COUNT % 2)
    assert sorted(seen) == list(range(COUNT))


def test_leases_assigned_by_another_thread_are_read_on_a_stream_of_the_consumer() -> None:
    for streaming in (False, True):
        loader = DataLoader(data(), batch_size=4, device="cuda", streaming=streaming)
        feed, side = loader.leases(), torch.cuda.Stream()
        order = RandomSampler(COUNT).indices(0).tolist()
        found: list[int] = []
        for number, start in enumerate(range(0, COUNT, 20)):
            lease = Lease(lease_id=number, epoch=0, ranges=((start, min(start + 20, COUNT)),))
            controller = threading.Thread(target=feed.assign, args=(lease,))
            controller.start()
            controller.join(30)
            with torch.cuda.stream(side):
                taken = [feed.take(), feed.take()]
                assert feed.cut(number) == lease.tail(8)
                assert feed.take() is None
                for batch in taken:
                    if batch is not None:
                        found += batch["y"].tolist()
        expected = [order[start : start + 8] for start in range(0, COUNT, 20)]
        assert found == [sample for part in expected for sample in part]
        loader.close()
