"""Fingerprints of data and order: equal where ranks may train together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.data import DataLoader, TensorDataSet
from flodl.data.signature import dataset_signature


def loader(count: int, **options: Any) -> DataLoader:
    return DataLoader(TensorDataSet(x=torch.arange(count)), **{"batch_size": 2, **options})


def test_signatures_tell_data_order_and_seed_apart() -> None:
    same = {loader(20).signature() for _ in range(3)}
    assert len(same) == 1
    others = {
        loader(21).signature(),
        loader(20, seed=1).signature(),
        loader(20, shuffle=False).signature(),
        DataLoader(TensorDataSet(x=torch.arange(20) + 1), batch_size=2).signature(),
        DataLoader(TensorDataSet(y=torch.arange(20)), batch_size=2).signature(),
    }
    assert len(others | same) == 6


def test_a_data_set_may_sign_for_itself() -> None:
    class Signed(TensorDataSet):
        def signature(self) -> str:
            return "version 3"

    found = {
        DataLoader(Signed(torch.arange(9) + shift), batch_size=2).signature() for shift in (0, 1)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda x: [{"x": x[0]}, {"x": x[1]}, {"x": x[2]}],
        lambda x: [(x[0], 1.0), (x[1], 2.0), (x[2], 3.0)],
        lambda x: [x[0].numpy(), x[1].numpy(), x[2].numpy()],
    ],
    ids=["dicts", "tuples", "arrays"],
)
def test_first_middle_and_last_sample_and_the_length_count(make: Any) -> None:
    order = torch.arange(3)
    values = torch.arange(6.0).view(3, 2)
    same = dataset_signature(make(values), order)
    assert dataset_signature(make(values.clone()), order) == same
    for row in range(3):
        other = values.clone()
        other[row, 1] += 1
        assert dataset_signature(make(other), order) != same
    assert dataset_signature(make(values.double()), order) != same
    assert dataset_signature(make(values)[:2], order) != same
    assert dataset_signature(make(values), order.flip(0)) != same


def test_the_shape_counts_and_not_the_bytes_alone() -> None:
    order = torch.arange(2)
    flat, square = torch.zeros(2, 4), torch.zeros(2, 2, 2)
    assert dataset_signature(list(flat), order) != dataset_signature(list(square), order)


def test_a_set_of_batches_is_signed_by_its_rows() -> None:
    class Batches:
        def __len__(self) -> int:
            return 5

        def get_batch(self, indices: torch.Tensor) -> Any:
            return {"x": indices * 2}

    items = [{"x": torch.tensor(number * 2)} for number in range(5)]
    order = torch.arange(5)
    assert dataset_signature(Batches(), order) == dataset_signature(items, order)
