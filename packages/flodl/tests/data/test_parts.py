"""Ranks that keep their own part of a data set only, and loaders that deliver it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, ResumeMismatchError
from flodl.data import DataLoader, RandomSampler, SequentialSampler, TensorDataSet
from flodl.data.partition import Split
from flodl.data.parts import FixedParts


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, list[int]]:
    world = draw(st.integers(1, 6))
    shares = draw(st.none() | st.tuples(*[st.floats(0.1, 9) for _ in range(world)]))
    split = Split(world_size=world, shares=shares, uneven=draw(st.sampled_from(["drop", "allow"])))
    count = draw(st.integers(0, 90))
    batch_size, drop_last = draw(st.integers(1, 9)), draw(st.booleans())
    return count, split.sizes(count, batch_size=batch_size, drop_last=drop_last)


@given(given_=partitions(), epoch=st.integers(0, 3), seed=st.none() | st.integers(0, 5))
def test_each_rank_s_slice_of_an_order_of_all_samples_lies_in_its_part(
    given_: tuple[int, list[int]], epoch: int, seed: int | None
) -> None:
    count, sizes = given_
    parts = FixedParts(count, sizes)
    order = parts.order(epoch, seed).tolist()
    assert sorted(order) == list(range(count))
    assert [sample for rank in range(len(sizes)) for sample in parts.of(rank)] == list(range(count))
    first = 0
    for rank, size in enumerate(sizes):
        assert set(order[first : first + size]) <= set(parts.of(rank))
        first += size


def test_what_an_epoch_leaves_out_changes_with_the_epochs() -> None:
    parts = FixedParts(11, [4, 4])
    left = {tuple(parts.order(epoch, 1).tolist()[8:]) for epoch in range(20)}
    assert len(left) > 5
    assert {len(parts.of(rank)) for rank in range(2)} == {5, 6}


def test_ranks_are_shuffled_each_in_its_own_way() -> None:
    parts = FixedParts(40, [20, 20])
    order = parts.order(0, 1).tolist()
    assert [sample - 20 for sample in order[20:]] != order[:20]


class Counted:
    """Numbers through ``get_batch``; notes which were read."""

    is_fixed = True

    def __init__(self, count: int = 22) -> None:
        self.count = count
        self.read: set[int] = set()

    def __len__(self) -> int:
        return self.count

    def get_batch(self, indices: torch.Tensor) -> Any:
        self.read |= set(indices.tolist())
        return {"x": indices}


def part_loader(data: Any, rank: int, world: int, split: Any = None, **options: Any) -> DataLoader:
    loader = DataLoader(data, **{"batch_size": 3, "resident": "partition", **options})
    loader.partition(rank, world, **(split or {}))
    return loader


def taken(loader: DataLoader, epoch: int = 0) -> list[int]:
    return [x for batch in loader.epoch(epoch) for x in batch["x"].tolist()]


def test_a_rank_reads_and_keeps_no_more_than_its_part() -> None:
    seen: list[set[int]] = []
    for rank in range(3):
        data = Counted()
        loader = part_loader(data, rank, 3)
        assert data.read == {0}  # its layout
        seen.append({x for epoch in range(30) for x in taken(loader, epoch)})
        assert data.read == seen[-1] | {0}
        assert loader.is_resident
        assert len(loader) == 2
    assert sorted(x for part in seen for x in part) == list(range(22))


def test_a_part_lies_on_the_device() -> None:
    for rank, rows in enumerate((8, 7, 7)):
        loader = part_loader(Counted(), rank, 3, device="meta")
        assert loader.store is None
        list(loader.epoch(0))
        assert loader.store is not None
        (kept,) = loader.store.tensors
        assert kept.shape[0] == rows
        loader.partition(0, 1)
        list(loader.epoch(1))
        assert loader.store is not None
        assert loader.store.tensors[0].shape[0] == 22


@pytest.mark.parametrize("split", [{}, {"uneven": "allow"}, {"shares": [1.0, 3.0]}])
@pytest.mark.parametrize("data", [Counted(), TensorDataSet(x=torch.arange(22))])
def test_an_epoch_of_all_ranks_has_each_sample_at_most_once(split: Any, data: Any) -> None:
    for epoch in range(3):
        ranks = [taken(part_loader(data, rank, 2, split), epoch) for rank in range(2)]
        both = [x for part in ranks for x in part]
        assert len(both) == len(set(both)) >= 22 - 2 * 3 + 1
    assert taken(part_loader(data, 0, 2, split), 0) != taken(part_loader(data, 0, 2, split), 1)


def test_without_a_shuffle_a_part_is_in_the_order_of_the_set() -> None:
    found = [
        taken(part_loader(Counted(), rank, 2, {"uneven": "allow"}, shuffle=False, drop_last=False))
        for rank in range(2)
    ]
    assert found == [list(range(11)), list(range(11, 22))]


def test_alone_a_rank_has_the_usual_order() -> None:
    loader = DataLoader(Counted(), batch_size=22, resident="partition")
    assert taken(loader, 2) == RandomSampler(22).indices(2).tolist()


def test_a_part_is_resumed_in_the_middle_by_as_many_ranks_only() -> None:
    whole = [taken(part_loader(Counted(), rank, 2)) for rank in range(2)]
    first = part_loader(Counted(), 0, 2)
    next(first.epoch(0))
    state = first.state_dict()
    for rank in range(2):
        other = part_loader(Counted(), rank, 2)
        other.load_state_dict(state)
        assert taken(other) == whole[rank][3:]
    with pytest.raises(ResumeMismatchError, match="epoch 0 was cut up among 2 ranks, or in batch"):
        part_loader(Counted(), 0, 3).load_state_dict(state, strict=False)
    whole_set = DataLoader(Counted(), batch_size=3)
    whole_set.partition(0, 2)
    with pytest.raises(ResumeMismatchError, match="order_crc"):
        whole_set.load_state_dict(state)


def test_what_would_need_samples_of_other_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match='resident="partition" with a sampler'):
        DataLoader(Counted(), batch_size=2, resident="partition", sampler=SequentialSampler(3))
    with pytest.raises(ConfigError, match='uneven="pad" with resident="partition"'):
        part_loader(Counted(), 0, 2, {"uneven": "pad"})
    with pytest.raises(ConfigError, match=r'leases\(\) with resident="partition"'):
        part_loader(Counted(), 0, 2).leases()
    with pytest.raises(ConfigError, match="resident='slice': expected True, False, \"partition\""):
        DataLoader(Counted(), batch_size=2, resident="slice")  # type: ignore[arg-type]
