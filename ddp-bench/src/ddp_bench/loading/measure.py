"""What is measured of one loader: throughput, idle time, latencies, memory."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psutil
import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.arms import Arm

COMPUTE_S = 0.005
LEAST_S = 0.2
MOST_EPOCHS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Medians over the rounds of one arm; memory is that of the first epoch."""

    name: str
    side: str
    samples_per_s: float
    rates: tuple[float, ...]
    """Samples per second of each round."""
    computing_samples_per_s: float
    idle_share: float
    first_batch_ms: float
    epoch_gap_batches: float
    host_cpu_s_per_million: float
    """CPU seconds of this process and its children for a million samples."""
    ram_bytes: int
    """What the loader, its batches and its processes took of the host beyond what was taken before;
    pages that processes share are counted once."""
    vram_bytes: int | None
    """The same of the GPU."""


class Compute(Protocol):
    """Keeps a device busy for 5 ms a batch, and knows how long it was not."""

    def begin(self) -> None:
        """Forget the epoch before."""

    def __call__(self) -> None:
        """Do the work of one batch, or begin it."""

    def finish(self) -> None:
        """Wait for the device."""

    def idle_share(self, steady_s: float, batches: int) -> float:
        """Return the share of the time between batches in which the device did no work."""


class HostCompute:
    """A processor that is busy for the time: it sleeps."""

    def begin(self) -> None:
        """Do nothing."""

    def __call__(self) -> None:
        """Sleep."""
        time.sleep(COMPUTE_S)

    def finish(self) -> None:
        """Do nothing: all is done."""

    def idle_share(self, steady_s: float, batches: int) -> float:
        """Return what the epoch took beyond its work."""
        return max(0.0, 1 - batches * COMPUTE_S / steady_s) if steady_s > 0 else 0.0


class GpuCompute:
    """A GPU that spins; events on its stream tell when it did and when it did not."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cycles = _cycles_of(COMPUTE_S)
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self) -> None:
        """Forget the epoch before."""
        self._marks.clear()

    def __call__(self) -> None:
        """Begin the work of one batch."""
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        torch.cuda._sleep(self._cycles)  # noqa: SLF001 - torch's own way to a busy GPU
        ended.record()
        self._marks.append((begun, ended))

    def finish(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self._device)

    def idle_share(self, steady_s: float, batches: int) -> float:  # noqa: ARG002 - events know
        """Return the share of the time from the first work to the last that lies between works."""
        gaps = sum(
            before[1].elapsed_time(after[0]) for before, after in itertools.pairwise(self._marks)
        )
        total = self._marks[0][0].elapsed_time(self._marks[-1][1])
        return max(0.0, gaps) / total if total > 0 else 0.0


def compute_on(device: torch.device) -> Compute:
    """Return what keeps a device busy."""
    return GpuCompute(device) if device.type == "cuda" else HostCompute()


def _cycles_of(seconds: float) -> int:
    trial, start, end = 50_000_000, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(trial)  # noqa: SLF001
    start.record()
    torch.cuda._sleep(trial)  # noqa: SLF001
    end.record()
    torch.cuda.synchronize()
    return int(trial * seconds * 1000 / start.elapsed_time(end))


def _family() -> list[psutil.Process]:
    process = psutil.Process()
    return [process, *process.children(recursive=True)]


def _cpu_s() -> float:
    return _total(lambda process: sum(process.cpu_times()[:2]))


def _ram_bytes() -> int:
    return int(_total(lambda process: process.memory_full_info().pss))


def _total(of: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in _family():
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed
            total += of(process)
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pass:
    """One epoch as it was taken."""

    seconds: float
    samples: int
    batches: int
    first_s: float


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
        self._ram = 0
        self._vram: int | None = None

    def warm_up(self) -> None:
        """Take one epoch, so that workers run and memory is allocated."""
        on_gpu = isinstance(self._compute, GpuCompute)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        ram = _ram_bytes()
        self._take(lambda: None)
        if on_gpu:
            self._vram = self.arm.held_vram_bytes + torch.cuda.max_memory_allocated() - before
        self._ram = self.arm.held_ram_bytes + max(0, _ram_bytes() - ram)

    def round(self) -> None:
        """Measure once without and once with compute."""
        before = _cpu_s()
        seconds, samples = 0.0, 0
        for _ in range(MOST_EPOCHS):  # short epochs say little: several count as one
            taken = self._take(lambda: None)
            seconds += taken.seconds
            samples += taken.samples
            if seconds >= LEAST_S:
                break
        self._cpu.append((_cpu_s() - before) / samples * 1e6)
        self._rates.append(samples / seconds)
        self._compute.begin()
        busy = self._take(self._compute)
        self._busy_rates.append(busy.samples / busy.seconds)
        self._first.append(busy.first_s)
        # the wait for the first batch is the gap between epochs: it has a bar of its own
        steady = busy.seconds - busy.first_s
        self._idle.append(self._compute.idle_share(steady, busy.batches))
        ordinary = steady / busy.batches
        # from the last batch of an epoch to the first of the next, beyond what is ordinary
        self._gaps.append(max(0.0, busy.first_s + COMPUTE_S - ordinary) / ordinary)

    def _take(self, work: Callable[[], None]) -> _Pass:
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
        seconds = time.perf_counter() - begun
        return _Pass(seconds=seconds, samples=samples, batches=batches, first_s=first)

    def figures(self) -> Figures:
        """Return the medians."""
        return Figures(
            name=self.arm.name,
            side=self.arm.side,
            samples_per_s=statistics.median(self._rates),
            rates=tuple(self._rates),
            computing_samples_per_s=statistics.median(self._busy_rates),
            idle_share=statistics.median(self._idle),
            first_batch_ms=1e3 * statistics.median(self._first),
            epoch_gap_batches=statistics.median(self._gaps),
            host_cpu_s_per_million=statistics.median(self._cpu),
            ram_bytes=self._ram,
            vram_bytes=self._vram,
        )
