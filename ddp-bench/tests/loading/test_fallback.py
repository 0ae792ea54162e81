from __future__ import annotations

import pytest
import torch

from ddp_bench.loading.fallback import measure


@pytest.mark.cuda
def test_a_full_gpu_is_made_and_left() -> None:
    found = measure(torch.device("cuda:0"))
    assert (found.fell_back, found.lost) == (True, 0)
