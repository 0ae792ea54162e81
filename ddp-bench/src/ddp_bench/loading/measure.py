"""What is measured of one loader: throughput, idle time, latencies, memory."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.arms import Arm

COMPUTE_S = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Medians over the rounds of one arm; memory is that after the last."""

    name: str
    side: str
    samples_per_s: float
    rates: tuple[float, ...]
    """Samples per second of each round."""
    computing_samples_per_s: float
    idle_share: float
    first_batch_ms: float
    epoch_gap_batches: float
    host_cpu_s_per_epoch: float
    rss_bytes: int
    vram_bytes: int | None


class Compute:
    """Keeps the device busy for 5 ms a batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cycles = _cycles_of(COMPUTE_S) if device.type == "cuda" else 0

    def __call__(self) -> None:
        """Begin the work of one batch; on the CPU, be done with it."""
        if self._cycles:
            torch.cuda._sleep(self._cycles)  # noqa: SLF001 - torch's own way to a busy GPU
        else:
            time.sleep(COMPUTE_S)

    def finish(self) -> None:
        """Wait for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _cycles_of(seconds: float) -> int:
    trial, start, end = 50_000_000, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(trial)  # noqa: SLF001
    start.record()
    torch.cuda._sleep(trial)  # noqa: SLF001
    end.record()
    torch.cuda.synchronize()
    return int(trial * seconds * 1000 / start.elapsed_time(end))


class Meter:
    """Measures one arm, a round at a time.

    Args:
        arm: What is measured.
        compute: What the device does with a batch.
        batches: How many are taken of an epoch at most.
    """

    def __init__(self, arm: Arm, compute: Compute, batches: int) -> None:
        self.arm = arm
        self._compute = compute
        self._batches = batches
        self._epoch = 0
        self._rates: list[float] = []
        self._busy_rates: list[float] = []
        self._idle: list[float] = []
        self._first: list[float] = []
        self._gaps: list[float] = []
        self._cpu: list[float] = []

    def warm_up(self) -> None:
        """Take one epoch, so that workers run and memory is allocated."""
        self._take(lambda: None)

    def round(self) -> None:
        """Measure once without and once with compute."""
        process = psutil.Process()
        before = sum(process.cpu_times()[:2])
        seconds, samples, _, _ = self._take(lambda: None)
        self._cpu.append(sum(process.cpu_times()[:2]) - before)
        self._rates.append(samples / seconds)
        seconds, samples, batches, first = self._take(self._compute)
        self._busy_rates.append(samples / seconds)
        self._first.append(first)
        # the wait for the first batch is the gap between epochs: it has a bar of its own
        steady = seconds - first
        self._idle.append(max(0.0, 1 - batches * COMPUTE_S / steady) if steady > 0 else 0.0)
        ordinary = steady / batches
        # from the last batch of an epoch to the first of the next, beyond what is ordinary
        self._gaps.append(max(0.0, first + COMPUTE_S - ordinary) / ordinary)

    def _take(self, work: Callable[[], None]) -> tuple[float, int, int, float]:
        samples = batches = 0
        first = 0.0
        self._epoch += 1
        begun = time.perf_counter()
        for batch in itertools.islice(self.arm.epoch(self._epoch), self._batches):
            if not batches:
                first = time.perf_counter() - begun
            work()
            samples += batch[0].shape[0]
            batches += 1
        self._compute.finish()
        if batches < 2:
            raise BenchError(
                f"{self.arm.side} {self.arm.name} gave {batches} batches in epoch {self._epoch}: "
                "nothing to measure"
            )
        return time.perf_counter() - begun, samples, batches, first

    def figures(self) -> Figures:
        """Return the medians."""
        on_gpu = torch.cuda.is_available()
        return Figures(
            name=self.arm.name,
            side=self.arm.side,
            samples_per_s=statistics.median(self._rates),
            rates=tuple(self._rates),
            computing_samples_per_s=statistics.median(self._busy_rates),
            idle_share=statistics.median(self._idle),
            first_batch_ms=1e3 * statistics.median(self._first),
            epoch_gap_batches=statistics.median(self._gaps),
            host_cpu_s_per_epoch=statistics.median(self._cpu),
            rss_bytes=psutil.Process().memory_info().rss,
            vram_bytes=torch.cuda.memory_reserved() if on_gpu else None,
        )
