"""Batches stacked of samples that come one at a time, or formed by others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    DataWorkerError,
    SampleError,
)
from flodl.data import Batch, DataLoader
from flodl.data.stack import Stacker, as_batch

DEPTHS = pytest.mark.parametrize("prefetch", [0, 1, 3])


def test_a_sample_unlike_the_first_is_named() -> None:
    def growing() -> Iterator[Any]:
        for number in range(6):
            yield torch.zeros(3 if number < 4 else 2)

    epoch = DataLoader.from_iterable(growing, 2).epoch(0)
    next(epoch), next(epoch)
    with pytest.raises(
        DataWorkerError, match=r"sample 4, tensor 0 .* \[2\]: sample 0 has"
    ) as caught:
        next(epoch)
    assert isinstance(caught.value.__cause__, SampleError)


def test_collate_may_pad() -> None:
    def ragged() -> Iterator[Any]:
        for number in range(1, 5):
            yield torch.ones(number)

    def pad(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"x": torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)}

    batches = list(DataLoader.from_iterable(ragged, 2, collate=pad))
    assert [list(batch["x"].shape) for batch in batches] == [[2, 2], [2, 4]]


def test_a_wrapped_loader_without_tensors_is_named() -> None:
    loader = DataLoader.wrap([["text"], ["more"]])
    with pytest.raises(DataWorkerError, match="a batch holds a str, which is no tensor"):
        list(loader)


def test_samples_are_stacked_in_the_layout_of_the_first() -> None:
    stacker = Stacker(None, None)
    first = stacker.form([{"x": 1, "y": 2.0}], 0, epoch=1, index=0)
    later = stacker.form([{"y": 3.0, "x": 4}, {"x": 5, "y": 6.0}], 1, epoch=1, index=1)
    assert (first.names, first["x"].dtype) == (("x", "y"), torch.int64)
    assert (later["x"].tolist(), later["y"].tolist()) == ([4, 5], [3.0, 6.0])
    assert (later.epoch, later.index) == (1, 1)
    with pytest.raises(SampleError, match="sample 3 has the names"):
        stacker.form([{"x": 1}], 3, epoch=1, index=2)


def test_given_names_replace_those_of_the_samples() -> None:
    batch = Stacker(["a", "b"], None).form([{"x": 1, "y": 2}], 0, epoch=0, index=0)
    assert batch.names == ("a", "b")


def test_batches_of_others_are_taken_in_any_form() -> None:
    x = torch.arange(2)
    for formed in (Batch([x], ["z"]), {"z": x}, {"z": x.numpy()}):
        assert as_batch(formed, None, epoch=4, index=5).names == ("z",)
        renamed = as_batch(formed, ["new"], epoch=4, index=5)
        assert (renamed.names, renamed.epoch, renamed.index) == (("new",), 4, 5)
    with pytest.raises(SampleError, match="a batch without tensors"):
        as_batch([], None, epoch=0, index=0)
    with pytest.raises(SampleError, match="holds a str, which is no tensor"):
        as_batch(["text"], None, epoch=0, index=0)
