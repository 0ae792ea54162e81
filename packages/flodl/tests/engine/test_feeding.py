"""Batches gathered within the step: the same rows, in the same order, with the same position."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flodl.core.errors import StaleIteratorError
from flodl.data import DataLoader, TensorDataSet
from flodl.data.resident import DeviceStore, ResidentSource, StorePlan
from flodl.engine.feeding import GatheringFeeder
from flodl.engine.loop import run_epoch
from flodl.engine.padding import BucketSizes
from flodl.engine.resident import RowBatch
from flodl.engine.step import TrainStep
from flodl.nn.schedulers import CosineScheduler


@pytest.fixture
def loader_on_device(place):
    """Return a function that makes a loader whose set lies in a store, as on a GPU."""

    def make(count=23, **options):
        generator = torch.Generator().manual_seed(0)
        data = TensorDataSet(
            x=torch.randn(count, 8, generator=generator),
            y=torch.randn(count, 4, generator=generator),
        )
        if place.device.type == "cuda":
            return DataLoader(data, batch_size=4, device="cuda", resident=True, **options)
        loader = DataLoader(data, batch_size=4, **options)
        plan = StorePlan(ResidentSource.of(data), range(count), torch.device("cpu"))
        loader._delivery.store = DeviceStore(plan, torch.device("cpu"))
        return loader

    return make


def rows_of(batches):
    return [
        (b.epoch, b.index, [t.clone() for t in (b.read() if isinstance(b, RowBatch) else b)])
        for b in batches
    ]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_rows_are_those_of_the_loader(loader_on_device, drop_last, shuffle):
    feeder = GatheringFeeder(loader_on_device(drop_last=drop_last, shuffle=shuffle))
    plain = loader_on_device(drop_last=drop_last, shuffle=shuffle)
    for epoch in (0, 1, 5):
        ours, theirs = rows_of(feeder.epoch(epoch)), rows_of(plain.epoch(epoch))
        assert [place[:2] for place in ours] == [place[:2] for place in theirs]
        for (_, _, mine), (_, _, other) in zip(ours, theirs, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
    assert len(ours) == (5 if drop_last else 6)


def test_the_loader_knows_what_was_taken(loader_on_device):
    loader, plain = loader_on_device(), loader_on_device()
    batches, others = GatheringFeeder(loader).epoch(2), plain.epoch(2)
    for _ in range(3):
        next(batches)
        next(others)
    batches.close()
    assert loader.state_dict() == plain.state_dict()
    again = loader_on_device()
    again.load_state_dict(loader.state_dict())
    left = rows_of(GatheringFeeder(again).epoch(2))
    assert [index for _, index, _ in left] == [3, 4]
    expected = rows_of(others)
    assert all(torch.equal(a[2][0], b[2][0]) for a, b in zip(left, expected, strict=True))
    finished = GatheringFeeder(loader_on_device())
    batches = finished.epoch(0)
    rows_of(batches)
    batches.close()
    batches.close()
    assert finished._loader.state_dict()["is_complete"]


def test_an_iterator_goes_stale_when_its_loader_begins_another_epoch(loader_on_device):
    loader = loader_on_device()
    batches = GatheringFeeder(loader).epoch(0)
    next(batches)
    loader.epoch(1)
    with pytest.raises(StaleIteratorError, match="epoch 0"):
        next(batches)
    batches.close()
    assert loader.state_dict()["epoch"] == 1


def test_a_set_that_is_not_on_the_device_comes_as_the_loader_gives_it(loader_on_device):
    loader = loader_on_device()
    loader._delivery.store = None
    assert [type(batch).__name__ for batch in GatheringFeeder(loader).epoch(0)] == ["Batch"] * 5


def mse(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def train(feeder, place, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
    model.to(place.device)
    step = TrainStep(mse, model, place.optimizer(model.parameters(), 0.05), **options)
    torch.manual_seed(1)
    results = [
        run_epoch(step, feeder, epoch, on_nonfinite="raise", should_stop=lambda: False)
        for epoch in range(4)
    ]
    return SimpleNamespace(step=step, model=model, losses=[r.avg_loss for r in results])


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_captured_training_on_gathered_rows_equals_eager_training_on_batches(
    loader_on_device, place, drop_last, accumulate
):
    options = {"accumulate": accumulate}
    eager = train(loader_on_device(drop_last=drop_last), place, capture="off", **options)
    feeder = GatheringFeeder(loader_on_device(drop_last=drop_last))
    captured = train(feeder, place, capture="require", **options)
    assert captured.losses == eager.losses
    for ours, theirs in zip(captured.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    stats = captured.step.stats()
    assert stats.captured >= 15
    assert stats.signatures[0].signature == (
        "x float32[4, 8], y float32[4, 4], gathered in the step"
    )


@pytest.mark.parametrize("schedule", [None, CosineScheduler(0.05, 0.001, 20)])
@pytest.mark.parametrize("together", [2, 3])
def test_several_steps_in_one_replay_equal_single_ones(loader_on_device, place, together, schedule):
    eager = train(loader_on_device(), place, capture="off", scheduler=schedule)
    feeder = GatheringFeeder(loader_on_device(), together)
    captured = train(
        feeder, place, capture="require", scheduler=schedule,
        steps_per_replay=together,
    )  # fmt: skip
    assert captured.losses == eager.losses
    assert captured.step.global_step == eager.step.global_step == 20
    for ours, theirs in zip(captured.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    stats = captured.step.stats()
    assert (stats.captured, stats.captures) == (17, 2)


def test_a_change_between_replays_of_several_steps_is_noticed(loader_on_device, place):
    def frozen(feeder, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(place.device)
        step = TrainStep(mse, model, place.optimizer(model.parameters(), 0.05), **options)
        losses = []
        for epoch in range(4):
            if epoch == 2:
                model[0].requires_grad_(False)
            result = run_epoch(step, feeder, epoch, on_nonfinite="raise", should_stop=lambda: False)
            losses.append(result.avg_loss)
        return losses

    eager = frozen(loader_on_device(), capture="off")
    assert frozen(GatheringFeeder(loader_on_device(), 2), steps_per_replay=2) == eager


def test_rows_that_are_to_be_padded_are_gathered_first(loader_on_device, place):
    def long(model, batch):
        assert batch["x"].shape == (4, 12)
        return mse(model, batch)

    model = nn.Linear(12, 4).to(place.device)
    step = TrainStep(
        long, model, place.optimizer(model.parameters(), 0.05),
        bucket_sizes={"x": BucketSizes(sizes=[12])},
    )  # fmt: skip
    feeder = GatheringFeeder(loader_on_device(), 2)
    run_epoch(step, feeder, 0, on_nonfinite="raise", should_stop=lambda: False)
    assert step.global_step == 5
