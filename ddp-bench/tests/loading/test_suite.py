from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.arms import Arm
from ddp_bench.loading.suite import check_equal


def arm(values: list[int], side: str = "flodl") -> Arm:
    def epoch(number: int) -> Iterator[list[torch.Tensor]]:
        return iter([[torch.tensor([value])] for value in values])

    return Arm(name="fake", side=side, epoch=epoch, close=lambda: None)


def test_loaders_that_differ_are_not_measured(cases: dict[str, Any]) -> None:
    case = cases["images in memory"]
    check_equal(case, [arm([1, 2]), arm([1, 2], "torch")])
    for other in ([1, 3], [1]):
        with pytest.raises(BenchError, match="torch fake gives other batches than flodl"):
            check_equal(case, [arm([1, 2]), arm(other, "torch")])
