"""Iterables, generators and loaders of torch as sources of batches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl.core.errors import (
    ConfigError,
)
from flodl.data import DataLoader, IterableConfig, TensorDataSet

DEPTHS = pytest.mark.parametrize("prefetch", [0, 1, 3])


def numbers(count: int, bad: int | None = None) -> Iterator[Any]:
    for number in range(count):
        if number == bad:
            raise RuntimeError(f"cannot read {bad}")
        yield {"x": torch.tensor(number)}


def stream(count: int = 10, batch_size: int = 2, shuffle_buffer: int = 0, **options: Any) -> Any:
    return DataLoader.from_iterable(
        lambda: numbers(count), batch_size, shuffle_buffer, **{"drop_last": False, **options}
    )


def seen(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]


def test_a_shuffle_buffer_gives_every_sample_once_and_the_same_for_a_seed_and_epoch() -> None:
    loader = stream(50, shuffle_buffer=8)
    first, second = seen(loader.epoch(0)), seen(loader.epoch(1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert seen(stream(50, shuffle_buffer=8).epoch(0)) == first
    assert seen(stream(50, shuffle_buffer=8, seed=1).epoch(0)) != first
    assert all(position - value >= -8 for position, value in enumerate(first))


@settings(max_examples=60)
@given(
    count=st.integers(0, 40),
    size=st.integers(1, 7),
    buffer=st.sampled_from([0, 5]),
    world=st.integers(1, 4),
    taken=st.integers(0, 10),
    prefetch=st.sampled_from([0, 2]),
)
def test_ranks_resumed_anywhere_visit_each_sample_once(
    count: int, size: int, buffer: int, world: int, taken: int, prefetch: int
) -> None:
    found: list[int] = []
    for rank in range(world):
        first = stream(count, size, buffer, prefetch=prefetch)
        first.partition(rank, world)
        epoch = first.epoch(1)
        found += seen(itertools.islice(epoch, taken))
        state = json.loads(json.dumps(first.state_dict()))
        epoch.close()
        second = stream(count, size, buffer, prefetch=prefetch)
        second.partition(rank, world)
        second.load_state_dict(state)
        rest = list(second.epoch(1))
        found += seen(rest)
    assert sorted(found) == list(range(count))


class Stateful:
    """A source that can go on where it was, and counts what it reads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.start = self.place = self.reads = 0
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.start = 0

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["place"]

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.start, self.count):
            self.place = number + 1
            self.reads += 1
            yield {"x": torch.tensor(number)}


@DEPTHS
def test_a_source_with_a_state_goes_on_without_reading_over(
    prefetch: int, caplog: pytest.LogCaptureFixture
) -> None:
    first = DataLoader.from_iterable(Stateful(20), 2, prefetch=prefetch)
    epoch = first.epoch(3)
    assert seen([next(epoch), next(epoch)]) == [0, 1, 2, 3]
    state = first.state_dict()
    epoch.close()
    source = Stateful(20)
    second = DataLoader.from_iterable(source, 2, prefetch=prefetch)
    second.load_state_dict(state)
    assert seen(second) == list(range(4, 20))
    assert (source.reads, source.epochs) == (16, [3])
    assert not caplog.records


def test_a_source_without_a_state_is_read_over_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = stream(20, prefetch=0)
    epoch = first.epoch(0)
    next(epoch)
    second = stream(20, prefetch=0)
    second.load_state_dict(first.state_dict())
    assert seen(second) == list(range(2, 20))
    assert "keeps no position: reading over 2 samples" in caplog.text


def test_a_generator_that_was_used_up_is_an_error() -> None:
    once = numbers(4)
    loader = DataLoader.from_iterable(lambda: once, 2)
    assert len(list(loader)) == 2
    with pytest.raises(ConfigError, match="epoch 1: generator can be read only once"):
        loader.epoch(1)


def test_a_torch_iterable_dataset_is_a_source() -> None:
    class Numbers(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from range(6)

    loader = DataLoader.from_iterable(Numbers(), 3)
    for _ in range(2):
        assert [batch[0].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]


def torch_loader(**options: Any) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(10), torch.arange(10) * 2)
    return torch.utils.data.DataLoader(data, batch_size=3, **options)


def test_a_wrapped_loader_gives_its_own_batches_by_name() -> None:
    loader = DataLoader.wrap(torch_loader(), names=["a", "b"], device="cpu")
    batches = list(loader)
    assert [batch["a"].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert batches[3]["b"].tolist() == [18]


def test_a_wrapped_loader_is_resumed_by_count() -> None:
    first = DataLoader.wrap(torch_loader())
    epoch = first.epoch(0)
    next(epoch)
    second = DataLoader.wrap(torch_loader())
    second.load_state_dict(first.state_dict())
    assert [batch[0].tolist() for batch in second] == [[3, 4, 5], [6, 7, 8], [9]]
    epoch.close()


def test_a_wrapped_loader_s_sampler_is_told_the_epoch() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(20))
    sampler: Any = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
    loader = DataLoader.wrap(torch.utils.data.DataLoader(data, batch_size=10, sampler=sampler))
    orders = [next(loader.epoch(number))[0].tolist() for number in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    loader.partition(0, 2)
    with pytest.raises(ConfigError, match="give that loader a torch DistributedSampler"):
        loader.epoch(2)


def test_our_data_sets_and_loaders_work_where_torch_s_are_expected() -> None:
    data = TensorDataSet(x=torch.arange(6))
    theirs = torch.utils.data.DataLoader(data, batch_size=3)
    assert [batch[0].tolist() for batch in theirs] == [[0, 1, 2], [3, 4, 5]]
    ours = DataLoader(data, batch_size=3, shuffle=False)
    assert [batch["x"].tolist() for batch in DataLoader.wrap(ours)] == [[0, 1, 2], [3, 4, 5]]


def test_every_option_of_an_iterable_has_its_stated_default() -> None:
    config = IterableConfig(batch_size=3)
    assert {field.name: getattr(config, field.name) for field in fields(config)} == {
        "batch_size": 3,
        "shuffle_buffer": 0,
        "seed": 42,
        "drop_last": True,
        "names": None,
        "collate": None,
        "sharded": False,
    }


def test_a_source_that_shards_itself_is_told_its_rank_or_left_alone() -> None:
    class Shards(Stateful):
        def shard_for_rank(self, rank: int, world_size: int) -> None:
            self.start, self.count = rank * 3, rank * 3 + 3

    loader = DataLoader.from_iterable(Shards(20), 3)
    loader.partition(2, 4)
    assert seen(loader) == [6, 7, 8]
    own = stream(6, sharded=True)
    own.partition(1, 2)
    assert seen(own) == list(range(6))


def test_a_factory_that_gives_nothing_to_iterate_over_is_named() -> None:
    with pytest.raises(TypeError, match="the factory gave a NoneType: expected an iterable"):
        list(DataLoader.from_iterable(lambda: None, 2))  # type: ignore[arg-type, return-value]


def test_a_device_and_names_are_given_by_place_too() -> None:
    loader = DataLoader.wrap(torch_loader(), "cpu", ["a", "b"])
    assert next(iter(loader)).names == ("a", "b")
    made = DataLoader.from_epoch_fn(lambda epoch: {"x": torch.arange(4) + epoch}, 2, "cpu")
    with made:
        assert made.device == torch.device("cpu")
