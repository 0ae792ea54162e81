"""Data that lie on the GPU before any loader takes them there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.data import Concat, DataLoader, Subset, TensorDataSet

pytestmark = pytest.mark.cuda

COUNT = 103


def data(count: int = COUNT, width: int = 5) -> TensorDataSet:
    rows = torch.arange(count)
    return TensorDataSet(x=rows.unsqueeze(1).float().expand(-1, width).contiguous(), y=rows)


def rows(loader: Any, epoch: int = 0) -> list[list[int]]:
    batches = list(loader.epoch(epoch))
    assert all(batch[0].is_cuda for batch in batches)
    assert all(batch["x"][:, 0].tolist() == batch["y"].tolist() for batch in batches)
    return [batch["y"].tolist() for batch in batches]


class OnGpu:
    """Samples and batches that are on the GPU when they are read."""

    def __init__(self, how: str) -> None:
        self._rows = torch.arange(COUNT, device="cuda")
        if how == "batches":
            self.get_batch = lambda indices: self._read(self._rows[indices.cuda()])
        else:
            self.get = lambda index: self._read(self._rows[index])

    def __len__(self) -> int:
        return COUNT

    def _read(self, rows: torch.Tensor) -> Any:
        return {"x": rows.unsqueeze(-1).float().expand(*rows.shape, 5).contiguous(), "y": rows}


def tensors_on_gpu() -> TensorDataSet:
    x, y = data().tensors
    return TensorDataSet(x=x.cuda(), y=y.cuda())


@pytest.mark.parametrize(
    "make",
    [
        tensors_on_gpu,
        lambda: OnGpu("items"),
        lambda: OnGpu("batches"),
        lambda: Subset(tensors_on_gpu(), range(COUNT)),
        lambda: Concat([tensors_on_gpu()]),
        lambda: TensorDataSet(x=data().tensors[0], y=data().tensors[1].cuda()),
    ],
    ids=["tensors", "items", "batches", "subset", "concat", "mixed"],
)
@pytest.mark.parametrize("options", [{}, {"streaming": True}, {"resident": True}, {"prefetch": 0}])
def test_data_that_are_on_the_gpu_already_are_taken_as_they_are(make: Any, options: Any) -> None:
    expected = [batch["y"].tolist() for batch in DataLoader(data(), batch_size=8).epoch(1)]
    assert rows(DataLoader(make(), batch_size=8, device="cuda", **options), 1) == expected
    options = {name: value for name, value in options.items() if name != "resident"}
    for pin in (False, True):
        for batch, ys in zip(
            DataLoader(make(), batch_size=8, pin=pin, **options).epoch(1), expected, strict=True
        ):
            assert batch["x"].device.type == "cpu"
            assert batch["x"].is_pinned() == pin
            assert batch["y"].tolist() == ys


def test_tensors_on_the_gpu_are_not_copied_to_be_resident_there() -> None:
    own = tensors_on_gpu()
    for made in (own, Subset(own, [5, 4, 3])):
        loader = DataLoader(made, batch_size=3, device="cuda")
        assert loader.store is not None
        assert all(a is b for a, b in zip(loader.store.tensors, own.tensors, strict=True))
        batch = next(loader.epoch(0))
        batch["x"].zero_()
    assert torch.equal(own.tensors[0].cpu(), data().tensors[0])


def test_what_a_data_set_computes_on_the_gpu_has_arrived_before_it_is_read() -> None:
    class Slow(OnGpu):
        def _read(self, rows: torch.Tensor) -> Any:
            torch.cuda._sleep(5_000_000)
            return super()._read(rows)

    side = torch.cuda.Stream()
    loader = DataLoader(Slow("batches"), batch_size=8, device="cuda", shuffle=False, prefetch=3)
    with torch.cuda.stream(side):
        sums = torch.stack([batch["x"].sum() for batch in loader.epoch(0)])
    side.synchronize()
    assert sums.tolist() == [5.0 * sum(range(n, n + 8)) for n in range(0, 96, 8)]


def test_an_epoch_function_may_compute_on_the_gpu() -> None:
    def fn(epoch: int) -> dict[str, torch.Tensor]:
        torch.cuda._sleep(5_000_000)
        values = torch.arange(40, device="cuda") + 1000 * epoch
        return {"x": values.float().unsqueeze(1), "y": values}

    with DataLoader.from_epoch_fn(fn, 8, device="cuda", shuffle=False) as loader:
        for epoch in range(3):
            flat = [y for batch in rows(loader, epoch) for y in batch]
            assert flat == list(range(1000 * epoch, 1000 * epoch + 40))
