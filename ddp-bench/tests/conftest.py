"""Fixtures shared by the tests of ddp-bench."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddp_bench.coverage import Coverage
from ddp_bench.definition import DataFacts
from ddp_bench.results import CellConfig, CellResult, EpochResult, FinalResult, WallTimes

CONFIG = {
    "epochs": 2,
    "batch_size": 64,
    "lr": 1e-3,
    "lr_note": None,
    "clip_value": None,
    "floor": 0.86,
    "device": "cpu",
    "threads": 1,
    "source": "mini",
    "seq_len": None,
    "characters": None,
}


def epoch(number: int, loss: float = 0.5, evaluation: float | None = 0.88) -> EpochResult:
    return EpochResult(
        epoch=number,
        loss=loss,
        eval=evaluation,
        scalars={},
        wall_ms=250.0,
        eval_ms=20.0,
        share=[1.0],
        tput=[15.9],
    )


@pytest.fixture
def make_result() -> Callable[..., CellResult]:
    """Return a maker of sound results; keywords replace fields, ``config`` those of the config."""

    def make(*, config: dict[str, Any] | None = None, **changes: Any) -> CellResult:
        fields: dict[str, Any] = {
            "model": "logistic",
            "mode": "solo-0",
            "profile": "mini",
            "seed": 42,
            "world": 1,
            "device_class": "cpu",
            "status": "complete",
            "error": None,
            "config": CellConfig(**{**CONFIG, **(config or {})}),
            "data": DataFacts(
                name="mnist", sha256="0" * 64, n_train=4000, n_test=1000, vocabulary=None
            ),
            "init_hash": "1" * 64,
            "epochs": [epoch(0, 0.9, 0.8), epoch(1, 0.5, 0.88)],
            "loss_curve": [[step, 2.0 / step] for step in range(1, 21)],
            "final": FinalResult(
                train_loss=0.5, eval=0.88, metric="accuracy", higher_is_better=True
            ),
            "coverage": Coverage(expected=7936, seen=7936, duplicates=0),
            "wall": WallTimes(train_only_s=0.5, eval_s=0.04, total_s=0.6),
            "env": {"torch": "2.11.0"},
        }
        return CellResult(**{**fields, **changes})

    return make
