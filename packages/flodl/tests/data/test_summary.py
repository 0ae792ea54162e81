from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from flodl.data import DataLoader, TensorDataSet


class Fetched:
    def __len__(self) -> int:
        return 10

    def get_batch(self, indices: torch.Tensor) -> Any:
        return {"x": indices, "y": indices * 10}


def test_the_summary_says_where_why_how_many_and_in_which_order() -> None:
    loader = DataLoader(TensorDataSet(x=torch.arange(1000), y=torch.arange(1000)), batch_size=64)
    assert loader.summary() == (
        "1000 samples (16 KB) resident on cpu: the data are tensors in memory; 15 batches of 64, "
        "partial batch dropped, order: seed 42, loaded in the caller's thread"
    )
    fetched = DataLoader(Fetched(), batch_size=3, drop_last=False, shuffle=False)
    assert fetched.summary() == (
        "10 samples (160 B) streamed to cpu: samples may differ from read to read, as the set has "
        "no is_fixed; 4 batches of 3, partial batch kept, order: SequentialSampler, loaded 2 ahead"
    )


def test_the_summary_is_logged_once_when_a_loader_is_built_and_for_each_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "flodl"):
        loader = DataLoader(Fetched(), batch_size=3)
        assert caplog.messages == [loader.summary()]
        loader.partition(1, 2)
        list(loader.epoch(0))
    assert caplog.messages[1:] == [f"rank 1 of 2: {loader.summary()}"]
    assert "1 batches of 3" in loader.summary()
