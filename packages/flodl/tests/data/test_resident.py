from __future__ import annotations

import torch

from flodl.data import Subset, TensorDataSet
from flodl.data.assembly import empty
from flodl.data.resident import ResidentSource


def source(data: object) -> ResidentSource:
    found = ResidentSource.of(data)
    assert found is not None
    return found


def test_rows_are_gathered_from_the_whole_tensors() -> None:
    found = source(TensorDataSet(x=torch.arange(10), y=torch.zeros(10, 3)))
    x, y = found.gather(torch.tensor([4, 2]), empty)
    assert (x.tolist(), list(y.shape)) == ([4, 2], [2, 3])
    assert (found.names, found.count, found.sample_bytes) == (("x", "y"), 2, 8 + 12)


def test_a_subset_is_gathered_from_its_base_without_a_copy_of_the_data() -> None:
    base = TensorDataSet(x=torch.arange(10))
    found = source(Subset(base, [9, 8, 7]))
    assert found.gather(found.place(torch.tensor([2, 0])), empty)[0].tolist() == [7, 9]


def test_torch_s_tensor_dataset_is_named_by_number() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(2), torch.zeros(2))
    assert source(data).names == ("0", "1")
