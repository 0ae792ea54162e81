"""Batches formed on the host: gathered, named, transformed or collated."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from flodl.core.errors import SampleError
from flodl.data import Batch, TensorDataSet
from flodl.data.assembly import Assembly, CollatedSource, bulk_reader, empty, transformed
from flodl.data.jobs import BatchJob, EpochRows
from flodl.data.resident import ResidentSource

ITEMS = [torch.full((number + 1,), number) for number in range(5)]


def padded(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    lengths = torch.tensor([len(sample) for sample in samples])
    return {"x": torch.nn.utils.rnn.pad_sequence(samples, batch_first=True), "length": lengths}


def assembly(transform: Any = None) -> Assembly:
    source = ResidentSource.of(TensorDataSet(x=torch.arange(10) * 2))
    assert source is not None
    return Assembly(source, ("value",), transform)


def test_a_batch_has_the_rows_and_the_place_of_its_job() -> None:
    rows = torch.tensor([7, 1, 4])
    job = BatchJob(
        rows=EpochRows(samples=rows, host=rows), start=1, stop=3, epoch=2, index=5, lease_id=1
    )
    batch = assembly()(job)
    assert (batch["value"].tolist(), batch.epoch, batch.index) == ([2, 8], 2, 5)


def test_an_assembly_travels_to_another_process() -> None:
    made = pickle.loads(pickle.dumps(assembly()))
    assert made.form(torch.tensor([3]), 0, 0)["value"].tolist() == [6]


def test_memory_is_that_which_is_given() -> None:
    made: list[torch.Tensor] = []

    def note(shape: Any, dtype: torch.dtype) -> torch.Tensor:
        made.append(empty(shape, dtype))
        return made[-1]

    batch = assembly().form(torch.tensor([3, 4]), 0, 0, note)
    assert batch["value"] is made[0]


def test_a_transform_that_gives_no_batch_is_named() -> None:
    with pytest.raises(TypeError, match="transform returned a int: expected a flodl"):
        assembly(lambda _: 3).form(torch.tensor([0]), 0, 0)
    batch = Batch([torch.zeros(1)])
    assert transformed("transform", None, batch) is batch


def test_collated_batches_may_pad() -> None:
    source = CollatedSource(ITEMS, padded)
    assert (source.names, source.count, source.sample_bytes) == (("x", "length"), 2, 16)
    x, length = source.gather(source.place(torch.tensor([2, 0])), empty)
    assert (x.tolist(), length.tolist()) == ([[2, 2, 2], [0, 0, 0]], [3, 1])


@pytest.mark.parametrize(
    ("formed", "names"),
    [
        (lambda n: Batch([torch.zeros(n)], ["z"]), ("z",)),
        (torch.zeros, ("0",)),
        (lambda n: (torch.zeros(n), torch.ones(n)), ("0", "1")),
    ],
    ids=["batch", "tensor", "tuple"],
)
def test_collate_may_give_any_form_of_tensors(formed: Any, names: tuple[str, ...]) -> None:
    source = CollatedSource(ITEMS, lambda samples: formed(len(samples)))
    assert source.names == names
    assert [len(part) for part in source.gather(torch.tensor([1, 2, 3]), empty)] == [3] * len(names)


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (lambda n: {"y": torch.zeros(n)}, r"collate gave \('y',\): for sample 0 it gave \('x',\)"),
        (lambda n: {"x": torch.zeros(n + 1)}, r"collate gave 'x' as \[4\] for 3 samples"),
        (lambda n: {"x": torch.tensor(1)}, r"collate gave 'x' as \[\] for 3 samples"),
        (lambda n: [torch.zeros(n)], "collate gave 1: for sample 0 it gave"),
    ],
    ids=["name", "rows", "number", "form"],
)
def test_what_collate_changes_from_batch_to_batch_is_refused(later: Any, says: str) -> None:
    source = CollatedSource(
        ITEMS, lambda samples: {"x": torch.zeros(1)} if len(samples) == 1 else later(len(samples))
    )
    with pytest.raises(SampleError, match=says):
        source.gather(torch.tensor([0, 1, 2]), empty)


def test_collate_without_tensors_is_refused() -> None:
    with pytest.raises(SampleError, match="collate gave no tensors"):
        CollatedSource(ITEMS, lambda _: [])


def test_samples_are_read_at_once_where_a_set_can() -> None:
    class Bulk(list[int]):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [self[index] + 100 for index in indices]

    assert bulk_reader(Bulk([1, 2, 3]))([2, 0]) == [103, 101]
    assert bulk_reader([1, 2, 3])([2, 0]) == [3, 1]
