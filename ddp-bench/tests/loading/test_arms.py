from __future__ import annotations

from typing import Any

import pytest
import torch

from ddp_bench.loading.arms import make_arms
from ddp_bench.loading.suite import check_equal

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "name", ["images in memory", "augmented items", "token windows in a file", "tar archives"]
)
def test_all_loaders_of_a_case_give_the_same_batches(cases: dict[str, Any], name: str) -> None:
    arms = make_arms(cases[name], CPU, (0,))
    assert {arm.side for arm in arms} == {"flodl", "torch"}
    check_equal(cases[name], arms)
    for arm in arms:
        arm.close()
