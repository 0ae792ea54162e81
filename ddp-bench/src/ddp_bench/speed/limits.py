"""What a device can do, measured: products in each precision, copies, small kernels in a row.

Run: python -m ddp_bench.speed.limits [--device cuda] prints one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

_REPEATS = 7
_CHAIN = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Measured rates, in operations or bytes per second.

    Attributes:
        fp32: Of a large product of float32 matrices.
        tf32: The same where TF32 is allowed.
        bf16: Of bfloat16 matrices.
        copy: Bytes read and written by a large copy.
        kernel_us: Time of one tiny kernel in a captured graph of many that wait for each other;
            ``None`` on the CPU.
    """

    fp32: float
    tf32: float
    bf16: float
    copy: float
    kernel_us: float | None


def measure(
    device: torch.device, *, size: int | None = None, elements: int | None = None
) -> Limits:
    """Measure a device.

    Args:
        device: The device.
        size: Rows and columns of the matrices; by default enough to fill the device.
        elements: Of the buffers that are copied; likewise.
    """
    is_gpu = device.type == "cuda"
    size = size or (8192 if is_gpu else 1024)
    elements = elements or (2**28 if is_gpu else 2**25)
    before = torch.get_float32_matmul_precision()
    rates = {}
    try:
        for name, precision, dtype in (
            ("fp32", "highest", torch.float32),
            ("tf32", "high", torch.float32),
            ("bf16", "highest", torch.bfloat16),
        ):
            torch.set_float32_matmul_precision(precision)
            a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
            out = torch.empty_like(a)
            seconds = _seconds(lambda: torch.mm(a, b, out=out), device)  # noqa: B023
            rates[name] = 2 * size**3 / seconds
    finally:
        torch.set_float32_matmul_precision(before)
    source = torch.randn(elements, device=device)
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / _seconds(lambda: target.copy_(source), device)
    return Limits(**rates, copy=copied, kernel_us=_kernel_us(device) if is_gpu else None)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    times = []
    for number in range(_REPEATS + 2):
        _finish(device)
        started = time.perf_counter()
        work()
        _finish(device)
        if number >= 2:
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _kernel_us(device: torch.device) -> float:
    value = torch.zeros(128, 512, device=device)
    value.add_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CHAIN):
            value.add_(1)
    return _seconds(graph.replay, device) / _CHAIN * 1e6


def _heat(device: torch.device, seconds: float) -> None:
    """Keep a device busy with products, so that its clock has settled."""
    matrix = torch.randn(4096, 4096, device=device) if seconds else torch.empty(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(10):
            torch.mm(matrix, matrix)
        _finish(device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the limits of a device as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--warmup-secs", type=float, default=0.0, help="of products before")
    given = parser.parse_args(arguments)
    _heat(torch.device(given.device), given.warmup_secs)
    limits = measure(torch.device(given.device))
    sys.stdout.write(json.dumps(dataclasses.asdict(limits)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
