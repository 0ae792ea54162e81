from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, DataError, DataWorkerError, SamplerError
from flodl.data import Batch, DataLoader, RandomSampler, SequentialSampler, TensorDataSet


class Fetched:
    """Numbers read through ``get_batch``, so that nothing is in memory for the loader."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def get_batch(self, indices: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"x": indices, "y": indices * 10}


def in_memory(count: int) -> TensorDataSet:
    return TensorDataSet(x=torch.arange(count), y=torch.arange(count) * 10)


SETS = pytest.mark.parametrize("make", [in_memory, Fetched])


@SETS
def test_batches_arrive_by_name_with_their_place_in_the_epoch(make: Any) -> None:
    loader = DataLoader(make(10), batch_size=4, shuffle=False, drop_last=False)
    batches = list(loader.epoch(3))
    assert [batch["x"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch["y"].tolist() for batch in batches][2] == [80, 90]
    assert [(batch.epoch, batch.index) for batch in batches] == [(3, 0), (3, 1), (3, 2)]
    assert loader.names == batches[0].names == ("x", "y")


@given(
    n=st.integers(1, 60),
    size=st.integers(1, 70),
    drop_last=st.booleans(),
    prefetch=st.integers(0, 3),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_sample_is_visited_once_but_for_the_dropped_tail(
    n: int, size: int, drop_last: bool, prefetch: int, seed: int
) -> None:
    options: dict[str, Any] = {"batch_size": size, "drop_last": drop_last, "seed": seed}
    for data in (in_memory(n), Fetched(n)):
        loader = DataLoader(data, prefetch=prefetch, **options)
        batches = [batch["x"].tolist() for batch in loader.epoch(0)]
        seen = [index for batch in batches for index in batch]
        kept = n - n % size if drop_last else n
        assert len(batches) == len(loader) == loader.num_batches
        assert len(seen) == len(set(seen)) == kept
        assert seen == RandomSampler(n, seed).indices(0)[:kept].tolist()
        assert {len(batch) for batch in batches[:-1]} <= {size}


def test_memory_and_fetched_sets_give_equal_batches_for_a_seed() -> None:
    loaders = [DataLoader(data, batch_size=3) for data in (in_memory(20), Fetched(20))]
    for epoch in range(3):
        pairs = zip(*(loader.epoch(epoch) for loader in loaders), strict=True)
        assert all(torch.equal(a["y"], b["y"]) for a, b in pairs)
    assert [loader.is_resident for loader in loaders] == [True, False]
    assert [loader.prefetch_depth for loader in loaders] == [0, 2]


def test_equal_content_in_torch_s_loader() -> None:
    ours = DataLoader(in_memory(10), batch_size=4, shuffle=False, drop_last=False)
    theirs = torch.utils.data.DataLoader(in_memory(10), batch_size=4)
    for mine, other in zip(ours.epoch(0), theirs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


def test_iterating_over_the_loader_goes_from_epoch_to_epoch() -> None:
    loader = DataLoader(in_memory(4), batch_size=4)
    assert [batch.epoch for _ in range(3) for batch in loader] == [0, 1, 2]
    assert [batch.epoch for batch in loader.epoch(7)] == [7]
    assert [batch.epoch for batch in loader] == [8]


def test_an_epoch_can_be_repeated_and_others_differ() -> None:
    loader = DataLoader(in_memory(50), batch_size=50)
    first, second, again = (next(loader.epoch(n))["x"] for n in (0, 1, 0))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_batches_never_alias_the_data_set() -> None:
    data = in_memory(4)
    for shuffle in (False, True):
        for batch in DataLoader(data, batch_size=4, shuffle=shuffle):
            batch["x"].zero_()
    assert data.tensors[0].tolist() == [0, 1, 2, 3]


def test_given_names_replace_those_of_the_data_set() -> None:
    loader = DataLoader(Fetched(2), batch_size=2, names=["image", "label"])
    assert next(loader.epoch(0)).names == loader.names == ("image", "label")


def test_batches_move_to_the_device_and_are_transformed_before_and_after() -> None:
    seen: list[tuple[str, str]] = []

    def before(batch: Batch) -> Batch:
        seen.append(("transform", batch["x"].device.type))
        return batch.replace({"x": batch["x"] + 0.5})

    def after(batch: Batch) -> Batch:
        seen.append(("device_transform", batch["x"].device.type))
        return batch

    loader = DataLoader(
        in_memory(2), batch_size=2, device="meta", transform=before, device_transform=after
    )
    batch = next(loader.epoch(0))
    assert seen == [("transform", "cpu"), ("device_transform", "meta")]
    assert (batch["x"].device.type, batch["x"].dtype) == ("meta", torch.float32)
    assert (loader.device.type, loader.is_resident) == ("meta", False)


@pytest.mark.cuda
def test_batches_arrive_on_the_gpu() -> None:
    loader = DataLoader(in_memory(4), batch_size=2, device="cuda", shuffle=False)
    assert [batch["x"].tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert all(batch["x"].is_cuda for batch in loader)


def test_an_empty_data_set_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="the data set is empty"):
        DataLoader(Fetched(0), batch_size=1)


def test_a_batch_larger_than_the_set_leaves_no_batches_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "flodl"):
        loader = DataLoader(in_memory(3), batch_size=4)
    assert "batch_size=4 is more than the 3 samples of an epoch and drop_last is on" in caplog.text
    assert list(loader.epoch(0)) == []
    assert (len(loader), len(loader.epoch(0))) == (0, 0)
    caplog.clear()
    assert [b.size for b in DataLoader(in_memory(3), batch_size=4, drop_last=False)] == [3]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_sampler_decides_the_order_and_the_length() -> None:
    class Backwards:
        def __len__(self) -> int:
            return 4

        def indices(self, epoch: int) -> list[int]:
            return [9 - epoch, 8, 7, 7]

    loader = DataLoader(in_memory(10), batch_size=2, sampler=Backwards())
    assert (loader.num_samples, loader.num_batches) == (4, 2)
    assert [batch["x"].tolist() for batch in loader.epoch(1)] == [[8, 8], [7, 7]]


def test_a_sampler_of_no_samples_is_used_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(in_memory(3), batch_size=1, sampler=SequentialSampler(0))
    assert (loader.num_samples, list(loader.epoch(0))) == (0, [])
    assert "batch_size=1 is more than the 0 samples" in caplog.text


def test_a_sampler_outside_the_data_set_is_refused_when_the_epoch_starts() -> None:
    loader = DataLoader(in_memory(3), batch_size=1, sampler=SequentialSampler(4))
    with pytest.raises(SamplerError, match="gave index 3"):
        loader.epoch(0)


def test_a_closed_loader_starts_no_epoch() -> None:
    with DataLoader(Fetched(6), batch_size=1) as loader:
        batches = loader.epoch(0)
        next(batches)
    assert list(batches) == []
    loader.close()
    with pytest.raises(DataError, match=r"epoch\(1\): this loader is closed"):
        loader.epoch(1)


@pytest.mark.parametrize("number", [-1, 0.5, "0"])
def test_epochs_are_whole_numbers(number: Any) -> None:
    with pytest.raises(ConfigError, match="epoch="):
        DataLoader(in_memory(3), batch_size=1).epoch(number)


def test_an_error_on_sample_zero_is_seen_when_the_loader_is_built() -> None:
    class Broken(Fetched):
        def get_batch(self, indices: torch.Tensor) -> Any:
            raise OSError("disk gone")

    with pytest.raises(DataWorkerError, match="reading sample 0.*OSError: disk gone") as caught:
        DataLoader(Broken(3), batch_size=1)
    assert isinstance(caught.value.__cause__, OSError)


def test_prefetch_depth_can_be_changed_between_epochs() -> None:
    loader = DataLoader(Fetched(4), batch_size=1)
    loader.set_prefetch_depth(0)
    assert loader.prefetch_depth == 0
    assert len(list(loader.epoch(0))) == 4
    with pytest.raises(ConfigError, match="depth=-1"):
        loader.set_prefetch_depth(-1)


def test_an_epoch_outlives_its_loader() -> None:
    assert [b["x"].item() for b in DataLoader(Fetched(3), batch_size=1, shuffle=False)] == [0, 1, 2]
