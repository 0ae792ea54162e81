"""Results as the suite saves them, made up for the tests of what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddp_bench.speed.results import RoundResult


@pytest.fixture
def make_row() -> Callable[..., RoundResult]:
    """Return a maker of sound results of the mlp; keywords replace fields."""

    def make(**changes: Any) -> RoundResult:
        fields: dict[str, Any] = {
            "name": "mlp",
            "arm": "torch-eager",
            "variant": "",
            "sync_policy": "step",
            "round": 0,
            "device": "cuda",
            "dims": "full",
            "precision": "fp32",
            "runs": 3,
            "warmup_epochs": 3,
            "measured_epochs": 20,
            "batches_per_epoch": 50,
            "median_epoch_ms": 100.0,
            "median_cpu_ms": 90.0,
            "first_losses": [1.0, 0.9],
            "first_epoch_loss": 0.95,
            "first_epoch_ms": 500.0,
            "settings": {"threads": 1},
            "env": {"gpus": ["NVIDIA H200"], "torch": "2.11.0", "cores": 16},
        }
        return RoundResult(**{**fields, **changes})

    return make
