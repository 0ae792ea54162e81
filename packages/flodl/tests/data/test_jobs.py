"""Which rows make a batch, and how its errors name them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import DataStallError, DataWorkerError
from flodl.data.jobs import BatchJob, EpochJobs, EpochRows, is_run


def rows(count: int) -> EpochRows:
    samples = torch.arange(count) * 10
    return EpochRows(samples=samples, host=torch.arange(count))


@given(count=st.integers(0, 40), size=st.integers(1, 9), first=st.integers(0, 5))
def test_batches_follow_one_another_to_the_end_of_the_rows(
    count: int, size: int, first: int
) -> None:
    number = -(-count // size)
    jobs = EpochJobs(rows(count), 3, size, range(min(first, number), number), first_index=7)
    found = list(iter(jobs, None))
    assert [(job.index, job.epoch) for job in found] == [
        (7 + n, 3) for n in range(min(first, number), number)
    ]
    visited = [row for job in found for row in job.host_rows.tolist()]
    assert visited == list(range(min(first, number) * size, count))
    assert jobs() is None


def test_an_error_names_the_batch_and_its_first_samples() -> None:
    job = BatchJob(rows=rows(40), start=0, stop=12, epoch=1, index=4)
    error = job.failed(OSError("disk gone"))
    assert isinstance(error, DataWorkerError)
    assert str(error) == (
        "epoch 1, batch 4 (samples 0, 10, 20, 30, 40, 50, 60, 70, ...): OSError: disk gone"
    )
    stalled = job.failed(DataStallError("no batch within timeout=1 s", hint="look"))
    assert isinstance(stalled, DataStallError)
    assert stalled.message.endswith("...): no batch within timeout=1 s")
    assert stalled.hint == "look"


@pytest.mark.parametrize(
    ("order", "expected"),
    [([], False), ([4], True), ([4, 5, 6], True), ([4, 6], False), ([4, 6, 5, 7], False)],
)
def test_rows_in_a_run_are_told_from_others(order: list[int], expected: bool) -> None:
    assert is_run(torch.tensor(order, dtype=torch.int64)) == expected
