from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, SampleError
from flodl.data import Concat, DataLoader, MapDataSet, Repeat, Subset, TensorDataSet, split
from flodl.data.compose import InMemoryView


def numbers(count: int, start: int = 0) -> TensorDataSet:
    return TensorDataSet(x=torch.arange(start, start + count))


def test_map_applies_the_function_to_each_sample() -> None:
    data = MapDataSet(numbers(4), lambda sample: {"double": sample[0] * 2})
    assert len(data) == 4
    assert data[3] == {"double": torch.tensor(6)}
    loader = DataLoader(data, batch_size=2, shuffle=False)
    assert [batch["double"].tolist() for batch in loader.epoch(0)] == [[0, 2], [4, 6]]
    with pytest.raises(IndexError, match="index 4 is outside"):
        data.get(4)


def test_subset_keeps_order_and_names() -> None:
    part = Subset(numbers(10), [7, 2, 2])
    assert (len(part), part.names) == (3, ("x",))
    assert [int(part[i][0]) for i in range(3)] == [7, 2, 2]
    (x,) = part.get_batch([2, 0])
    assert x.tolist() == [2, 7]
    with pytest.raises(IndexError, match=r"\[0, 3\)"):
        part.get(3)
    with pytest.raises(IndexError, match=r"\[0, 10\)"):
        Subset(numbers(10), [10])


def test_repeat_goes_round() -> None:
    data = Repeat(numbers(3), 8)
    (x,) = data.get_batch(range(8))
    assert x.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    with pytest.raises(IndexError, match=r"\[0, 8\)"):
        data.get(8)
    with pytest.raises(ConfigError, match="must be at least 1"):
        Repeat(numbers(3), 0)


def test_views_of_memory_stay_in_memory() -> None:
    data = Repeat(Subset(numbers(10, start=100), [9, 1]), 5)
    view = InMemoryView.of(data)
    assert view is not None
    assert view.tensors[0][view.rows(torch.arange(5))].tolist() == [109, 101, 109, 101, 109]
    loader = DataLoader(data, batch_size=5, shuffle=False)
    assert loader.is_resident
    assert [batch["x"].tolist() for batch in loader.epoch(0)] == [[109, 101, 109, 101, 109]]
    assert InMemoryView.of(MapDataSet(numbers(3), lambda sample: sample)) is None


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_concat_equals_the_parts_one_after_the_other(sizes: list[int], random: object) -> None:
    starts = [100 * place for place in range(len(sizes))]
    data = Concat([numbers(size, start) for size, start in zip(sizes, starts, strict=True)])
    whole = [start + i for size, start in zip(sizes, starts, strict=True) for i in range(size)]
    assert len(data) == len(whole)
    asked = [random.randrange(len(whole)) for _ in range(5)]  # type: ignore[attr-defined]
    (x,) = data.get_batch(asked)
    assert x.tolist() == [whole[index] for index in asked]
    assert [int(data[index][0]) for index in range(len(whole))] == whole


def test_concat_of_unlike_parts_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected the same"):
        Concat([numbers(2), TensorDataSet(y=torch.zeros(2))])
    with pytest.raises(ConfigError, match="no data sets"):
        Concat([])
    mixed = Concat([numbers(2), TensorDataSet(x=torch.zeros(2))])
    with pytest.raises(SampleError, match="different batches"):
        mixed.get_batch([0, 3])


def test_concat_of_dict_batches_gives_dicts() -> None:
    class Named:
        def __len__(self) -> int:
            return 2

        def get_batch(self, indices: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"x": indices}

    assert Concat([Named(), Named()]).get_batch([3, 0])["x"].tolist() == [1, 0]


@given(st.integers(3, 200), st.integers(0, 2**63 - 1))
def test_split_parts_are_disjoint_and_cover_everything(count: int, seed: int) -> None:
    parts = split(numbers(count), [0.5, 0.3, 0.2], seed) if count > 4 else []
    found = [int(part[i][0]) for part in parts for i in range(len(part))]
    assert sorted(found) == (list(range(count)) if count > 4 else [])


def test_split_sizes_follow_the_fractions_and_the_seed_decides() -> None:
    first = split(numbers(10), [0.7, 0.3], seed=1)
    assert [len(part) for part in first] == [7, 3]
    again, other = split(numbers(10), [0.7, 0.3], seed=1), split(numbers(10), [0.7, 0.3], seed=2)
    assert torch.equal(first[0].indices, again[0].indices)
    assert not torch.equal(first[0].indices, other[0].indices)


@pytest.mark.parametrize("fractions", [[], [0.5, 0.4], [1.5, -0.5], [1.0, 0.0]])
def test_fractions_that_do_not_add_up_are_refused(fractions: list[float]) -> None:
    with pytest.raises(ConfigError, match="positive numbers with the sum 1"):
        split(numbers(10), fractions)


def test_a_part_without_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave a part without samples"):
        split(numbers(3), [0.9, 0.1])
