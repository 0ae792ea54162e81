from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.arms import Arm
from ddp_bench.loading.measure import Meter, compute_on

CPU = torch.device("cpu")


def arm(values: list[int], side: str = "flodl") -> Arm:
    def epoch(number: int) -> Iterator[list[torch.Tensor]]:
        return iter([[torch.tensor([value])] for value in values])

    return Arm(name="fake", side=side, epoch=epoch, close=lambda: None)


def test_a_meter_counts_samples_and_finds_one_batch_too_few() -> None:
    meter = Meter(arm([1, 2, 3]), compute_on(CPU), batches=10)
    meter.warm_up()
    meter.round()
    figures = meter.figures()
    assert figures.samples_per_s > 0
    assert 0 <= figures.idle_share <= 1
    assert len(figures.rates) == 1
    assert figures.ram_bytes >= 0
    assert figures.vram_bytes is None
    with pytest.raises(BenchError, match="gave 1 batches in epoch 1: nothing to measure"):
        Meter(arm([1]), compute_on(CPU), batches=10).warm_up()


@pytest.mark.cuda
def test_a_gpu_that_waits_is_found_idle_and_one_that_does_not_is_not() -> None:
    compute = compute_on(torch.device("cuda:0"))
    for wait, low, high in ((0, 0.0, 0.02), (25_000_000, 0.3, 0.95)):
        compute.begin()
        for _ in range(5):
            compute()
            if wait:
                torch.cuda._sleep(wait)
        compute.finish()
        assert low <= compute.idle_share(1.0, 5) <= high


def test_memory_that_an_arm_takes_is_counted() -> None:
    kept: list[torch.Tensor] = []

    def epoch(number: int) -> Iterator[list[torch.Tensor]]:
        if number == 1:
            kept.append(torch.ones(256 << 20, dtype=torch.uint8))
        return iter([[torch.tensor([number])]] * 2)

    hungry = Arm(name="x", side="flodl", epoch=epoch, close=kept.clear, held_ram_bytes=1 << 30)
    meter = Meter(hungry, compute_on(CPU), batches=2)
    meter.warm_up()
    meter.round()
    # others in this process may free or take some meanwhile
    assert abs(meter.figures().ram_bytes - (1 << 30) - (256 << 20)) < 128 << 20
