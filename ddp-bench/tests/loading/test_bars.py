from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ddp_bench.loading.bars import judge, judge_fallback
from ddp_bench.loading.fallback import Fallback
from ddp_bench.loading.measure import Figures


def figures(name: str, side: str, rate: float, **changes: Any) -> Figures:
    base = Figures(
        name=name,
        side=side,
        samples_per_s=rate,
        rates=(rate, rate * 1.01),
        computing_samples_per_s=rate,
        idle_share=0.0,
        first_batch_ms=1.0,
        epoch_gap_batches=0.1,
        host_cpu_s_per_million=0.1,
        ram_bytes=1,
        vram_bytes=None,
    )
    return dataclasses.replace(base, **changes)


THEIRS = [
    figures("items, 0 workers", "torch", 100),
    figures("batched, 0 workers", "torch", 400),
    figures("items, 4 workers", "torch", 200),
]


def verdicts(ours: list[Figures], *, on_gpu: bool, case: str = "images in memory") -> Any:
    found = judge(case, [*ours, *THEIRS], on_gpu=on_gpu)
    return {verdict.bar: verdict.holds for verdict in found}


@pytest.mark.parametrize(
    ("resident", "streaming", "expected"),
    [
        (500, 400, [True, True, True]),
        (399, 300, [False, True, False]),
        (250, 500, [True, False, False]),
    ],
)
def test_bars_on_the_cpu(resident: float, streaming: float, expected: list[bool]) -> None:
    ours = [figures("resident", "flodl", resident), figures("streaming", "flodl", streaming)]
    found = verdicts(ours, on_gpu=False)
    assert [
        found["streaming / best torch loader"],
        found["resident / torch items, 0 workers"],
        found["resident / torch batched"],
    ] == expected
    assert "idle, resident" not in found


def test_bars_on_a_gpu() -> None:
    ours = [
        figures("resident", "flodl", 2000, idle_share=0.004),
        figures("streaming", "flodl", 500, idle_share=0.02),
    ]
    assert all(verdicts(ours, on_gpu=True).values())
    ours = [
        figures("resident", "flodl", 1999, idle_share=0.006, epoch_gap_batches=1.5),
        figures("streaming", "flodl", 500, idle_share=0.04, epoch_gap_batches=1.5),
    ]
    found = verdicts(ours, on_gpu=True)
    assert [bar for bar, holds in found.items() if holds] == ["streaming / best torch loader"]


def test_a_full_gpu_must_be_left_in_time_and_without_loss() -> None:
    def held(**changes: Any) -> list[bool]:
        found = Fallback(**{"fell_back": True, "first_batch_s": 1.9, "lost": 0, **changes})
        return [verdict.holds for verdict in judge_fallback("full GPU", found)]

    assert held() == [True, True, True]
    assert held(fell_back=False) == [False, True, True]
    assert held(first_batch_s=2.1) == [True, False, True]
    assert held(lost=1) == [True, True, False]
