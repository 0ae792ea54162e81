from __future__ import annotations

import numpy as np
import pytest
import torch

from flodl.core.errors import ConfigError, SampleError
from flodl.data import InMemoryDataSet, TensorDataSet
from flodl.data.dataset import as_tensor, check_indices, in_memory_tensors, item_reader


def test_tensors_by_name_give_named_batches() -> None:
    data = TensorDataSet(x=torch.arange(5), y=torch.arange(5) * 10)
    assert (len(data), data.names) == (5, ("x", "y"))
    x, y = data.get_batch([3, 0])
    assert x.tolist() == [3, 0]
    assert y.tolist() == [30, 0]


def test_tensors_by_position_are_named_by_number() -> None:
    assert TensorDataSet(torch.zeros(2), torch.zeros(2, 3)).names == ("0", "1")


def test_arrays_are_shared_and_gradients_cut() -> None:
    array = np.arange(3)
    data = TensorDataSet(array, torch.ones(3, requires_grad=True))
    array[0] = 7
    assert data.get(0)[0] == 7
    assert not data.tensors[1].requires_grad


def test_read_only_arrays_are_copied_without_a_warning() -> None:
    array = np.arange(3)
    array.setflags(write=False)
    assert as_tensor(array).tolist() == [0, 1, 2]
    assert as_tensor(np.float32(2.5)) == 2.5


@pytest.mark.parametrize("indices", [[5], [-1], torch.tensor([0, 5]), np.array([-3])])
def test_indices_outside_are_refused_and_never_wrapped(indices: list[int]) -> None:
    with pytest.raises(IndexError, match=r"outside the data set: \[0, 5\)"):
        TensorDataSet(torch.arange(5)).get_batch(indices)


@pytest.mark.parametrize("index", [5, -1])
def test_one_sample_outside_is_refused_too(index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} is outside"):
        TensorDataSet(torch.arange(5)).get(index)


@pytest.mark.parametrize("indices", [[0.5], [True], torch.tensor([1.0])])
def test_indices_must_be_whole_numbers(indices: list[int]) -> None:
    with pytest.raises(TypeError, match="expected whole numbers"):
        check_indices(indices, 5)


def test_no_indices_give_an_empty_batch() -> None:
    (rows,) = TensorDataSet(torch.arange(5)).get_batch([])
    assert rows.shape == (0,)


def test_batches_do_not_alias_the_data_set() -> None:
    data = TensorDataSet(torch.arange(5))
    data.get_batch([0, 1, 2, 3, 4])[0].zero_()
    assert data.tensors[0].tolist() == [0, 1, 2, 3, 4]


def test_a_tensor_data_set_works_in_torch_s_loader() -> None:
    data = TensorDataSet(x=torch.arange(4), y=torch.arange(4) * 2)
    batches = list(torch.utils.data.DataLoader(data, batch_size=2))
    assert [[part.tolist() for part in batch] for batch in batches] == [
        [[0, 1], [0, 2]],
        [[2, 3], [4, 6]],
    ]


def test_rows_must_agree() -> None:
    with pytest.raises(SampleError, match=r"\[2, 3\] rows"):
        TensorDataSet(torch.zeros(2), torch.zeros(3))
    with pytest.raises(SampleError, match=r"\[None\] rows"):
        TensorDataSet(torch.tensor(1))


@pytest.mark.parametrize(("count", "named"), [(0, {}), (1, {"x": torch.zeros(1)})])
def test_tensors_are_given_in_one_form(count: int, named: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ConfigError, match="by position and by name"):
        TensorDataSet(*[torch.zeros(1)] * count, **named)


def test_redefining_how_an_in_memory_set_is_read_is_refused() -> None:
    with pytest.raises(TypeError, match="Augmented redefines get_batch"):

        class Augmented(TensorDataSet):
            def get_batch(self, indices: object) -> tuple[torch.Tensor, ...]:  # type: ignore[misc]
                return ()


def test_torch_s_tensor_dataset_counts_as_memory_but_its_subclasses_do_not() -> None:
    class Augmented(torch.utils.data.TensorDataset):
        pass

    tensor = torch.zeros(3)
    assert in_memory_tensors(torch.utils.data.TensorDataset(tensor)) == (tensor,)
    assert in_memory_tensors(Augmented(tensor)) is None


def test_single_samples_are_read_from_every_kind_of_data_set() -> None:
    class Bulk:
        def __len__(self) -> int:
            return 3

        def get_batch(self, indices: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"x": indices * 2}

    assert item_reader([4, 5, 6])(1) == 5
    assert item_reader(Bulk())(2) == {"x": torch.tensor(4)}
    assert item_reader(TensorDataSet(torch.arange(3)))(2) == (torch.tensor(2),)
    with pytest.raises(TypeError, match="int is not a data set"):
        item_reader(3)  # type: ignore[arg-type]


def test_the_shared_base_is_public_for_other_in_memory_sets() -> None:
    class Squares(InMemoryDataSet):
        @property
        def names(self) -> tuple[str, ...]:
            return ("square",)

        @property
        def tensors(self) -> tuple[torch.Tensor, ...]:
            return (torch.arange(4) ** 2,)

    assert Squares()[3] == (torch.tensor(9),)
    assert len(Squares()) == 4
