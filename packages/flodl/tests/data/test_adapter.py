from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from flodl.core.errors import SampleError
from flodl.data import DataSetAdapter
from flodl.data.adapter import as_batch_dataset


class Samples:
    """A data set of the given samples, read through ``get``."""

    def __init__(self, *samples: Any) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def get(self, index: int) -> Any:
        return self._samples[index]


class Bulk(Samples):
    """The same through ``__getitems__``, as torch's data sets offer it."""

    def __init__(self, *samples: Any) -> None:
        super().__init__(*samples)
        self.asked: list[list[int]] = []

    def __getitem__(self, index: int) -> Any:
        return self._samples[index]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.asked.append(indices)
        return [self._samples[index] for index in indices]


def test_samples_are_stacked_in_the_order_asked_for() -> None:
    adapter = DataSetAdapter(
        Samples(*[(torch.full((2,), float(n)), torch.tensor(n)) for n in range(4)])
    )
    rows, marks = adapter.get_batch([3, 1])
    assert rows.tolist() == [[3.0, 3.0], [1.0, 1.0]]
    assert marks.tolist() == [3, 1]
    assert (adapter.names, len(adapter)) == (("0", "1"), 4)


def test_dict_samples_give_the_names_in_any_key_order() -> None:
    adapter = DataSetAdapter(Samples({"x": 1.5, "y": 2}, {"y": 4, "x": 3.5}))
    x, y = adapter.get_batch([1, 0])
    assert adapter.names == ("x", "y")
    assert x.tolist() == [3.5, 1.5]
    assert y.tolist() == [4, 2]
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


def test_a_single_tensor_an_array_and_a_number_are_samples() -> None:
    assert DataSetAdapter(Samples(torch.ones(2))).get_batch([0])[0].shape == (1, 2)
    assert DataSetAdapter(Samples(np.ones((2, 3)))).get_batch([0, 0])[0].shape == (2, 2, 3)
    assert DataSetAdapter(Samples(5, 6)).get_batch([1])[0].tolist() == [6]


def test_declared_names_win_over_numbers() -> None:
    data = Samples((1, 2))
    data.names = ["x", "y"]  # type: ignore[attr-defined]
    assert DataSetAdapter(data).names == ("x", "y")


def test_bulk_reads_are_used_where_offered() -> None:
    data = Bulk(10, 11, 12)
    assert DataSetAdapter(data).get_batch([2, 0])[0].tolist() == [12, 10]
    assert data.asked == [[2, 0]]


def test_map_style_torch_data_sets_are_taken_as_they_are() -> None:
    class Squares(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.tensor([index]), index**2

    rows, squares = as_batch_dataset(Squares()).get_batch(torch.tensor([2, 3]))
    assert squares.tolist() == [4, 9]
    assert rows.tolist() == [[2], [3]]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ((torch.zeros(2),), "sample 1 has 1 tensors: sample 0 has 2 tensors"),
        ((torch.zeros(3), 1), r"sample 1, tensor 0 \('0'\) is torch.float32 \[3\]"),
        ((torch.zeros(2), 1.5), r"sample 1, tensor 1 \('1'\) is torch.float32 \[\]"),
        ({"a": 1, "b": 2}, r"sample 1 has the names \['a', 'b'\]: sample 0 has 2 tensors"),
        ((torch.zeros(2), "one"), "sample 1, value 1 is a str, which is no tensor"),
    ],
)
def test_a_sample_unlike_the_first_is_named(other: Any, says: str) -> None:
    with pytest.raises(SampleError, match=says):
        DataSetAdapter(Samples((torch.zeros(2), 1), other)).get_batch([0, 1])


def test_other_keys_than_the_first_sample_has_are_named() -> None:
    with pytest.raises(SampleError, match=r"has the names \['z'\]: sample 0 has names \['x'\]"):
        DataSetAdapter(Samples({"x": 1}, {"z": 1})).get_batch([1])


def test_a_first_sample_without_tensors_is_refused() -> None:
    with pytest.raises(SampleError, match="sample 0 has no tensors"):
        _ = DataSetAdapter(Samples(())).layout


def test_a_bulk_read_of_the_wrong_length_is_refused() -> None:
    class Short(Bulk):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return super().__getitems__(indices)[1:]

    with pytest.raises(SampleError, match="1 samples for 2 indices"):
        DataSetAdapter(Short(1, 2)).get_batch([0, 1])


def test_a_sample_that_raises_stop_iteration_does_not_look_like_the_end() -> None:
    class Ends(Samples):
        def get(self, index: int) -> Any:
            if index == 1:
                raise StopIteration
            return super().get(index)

    with pytest.raises(SampleError, match="reading sample 1 raised StopIteration"):
        DataSetAdapter(Ends(1, 2, 3)).get_batch([0, 1, 2])


def test_indices_outside_are_refused() -> None:
    with pytest.raises(IndexError, match="index 2 is outside"):
        DataSetAdapter(Samples(1, 2)).get_batch([2])


@pytest.mark.parametrize("value", [3, iter([1])])
def test_objects_that_are_no_data_sets_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is not a data set"):
        as_batch_dataset(value)
