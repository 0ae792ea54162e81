"""flodl-hf beside the reference library: ``python -m ddp_bench.transformer [--gate] [--json F]``.

On the CPU models have base width and 2 layers, on a GPU all of them. There the bars are on the
forward pass and on the captured step; loading is measured on the CPU only.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ddp_bench.transformer.loading import Loading, measure_loading
from ddp_bench.transformer.pairs import STEMS, make_pair, write_checkpoint
from ddp_bench.transformer.speed import Mode, Timing, measure
from flodl_hf.extras import load_extra

BARS: dict[Mode, float] = {"forward": 1.00, "step": 1.00}
GPU_BARS: dict[Mode, float] = {"forward": 1.00, "captured": 0.70}
LOAD_BAR = 1.00
PEAK_BAR = 1.10
_MODES: tuple[Mode, ...] = ("forward", "step", "captured")
_CPU_LAYERS, _GPU_LAYERS = 2, 12


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 where a bar was asked for and is missed."""
    args = _parser().parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    timings = [] if args.loading_only else list(_timings(args, device))
    loading = None if args.speed_only or on_gpu else _loading(args)
    missed = _missed(timings, loading, GPU_BARS if on_gpu else BARS)
    sys.stdout.write("\n".join(_lines(timings, loading, missed)) + "\n")
    if args.json:
        record = _record(timings, loading, device, args.dtype)
        Path(args.json).write_text(json.dumps(record, indent=2) + "\n")
    return 1 if args.gate and missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ddp_bench.transformer")
    parser.add_argument("--families", default=",".join(STEMS))
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--lengths", default="16,128,512")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; torch's choice if 0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--speed-only", action="store_true")
    parser.add_argument("--loading-only", action="store_true")
    parser.add_argument("--gate", action="store_true", help="end with 1 where a bar is missed")
    parser.add_argument("--json", metavar="FILE")
    return parser


def _timings(args: argparse.Namespace, device: torch.device) -> list[Timing]:
    layers = args.layers or (_GPU_LAYERS if device.type == "cuda" else _CPU_LAYERS)
    found = []
    for family in args.families.split(","):
        with TemporaryDirectory() as folder:
            pair = make_pair(family, layers, Path(folder), device, getattr(torch, args.dtype))
        for mode in _MODES if device.type == "cuda" else _MODES[:2]:
            for batch in map(int, args.batches.split(",")):
                for length in map(int, args.lengths.split(",")):
                    found.append(measure(pair, mode, batch, length, rounds=args.rounds))
                    sys.stderr.write(_row(found[-1]) + "\n")
    return found


def _loading(args: argparse.Namespace) -> Loading:
    with TemporaryDirectory() as folder:
        write_checkpoint("bert", _GPU_LAYERS, Path(folder))
        return measure_loading(Path(folder), rounds=max(3, args.rounds // 3))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _means(timings: Sequence[Timing]) -> dict[Mode, float]:
    return {
        mode: geometric_mean([each.ratio for each in timings if each.mode == mode])
        for mode in _MODES
        if any(each.mode == mode for each in timings)
    }


def _missed(
    timings: Sequence[Timing], loading: Loading | None, bars: Mapping[Mode, float]
) -> list[str]:
    missed = [
        f"{mode} {mean:.3f}"
        for mode, mean in _means(timings).items()
        if mean > bars.get(mode, math.inf)
    ]
    if loading is not None and loading.load > LOAD_BAR:
        missed.append(f"load time {loading.load:.3f}")
    if loading is not None and loading.peak > PEAK_BAR:
        missed.append(f"peak memory {loading.peak:.3f} of the file")
    return missed


def _row(timing: Timing) -> str:
    return (
        f"{timing.family:<12}{timing.mode:<9}B {timing.batch:<4}S {timing.length:<5}"
        f"{timing.reference_ms:>10.3f} ms {timing.ours_ms:>10.3f} ms   "
        f"{timing.ratio:.3f} ({timing.low:.3f}-{timing.high:.3f})"
    )


def _lines(timings: Sequence[Timing], loading: Loading | None, missed: Sequence[str]) -> list[str]:
    lines = [_row(each) for each in timings]
    lines += [f"{mode}: geometric mean {mean:.3f}" for mode, mean in _means(timings).items()]
    if loading is not None:
        lines += [
            f"load of {loading.bytes / 1e6:.0f} MB, both mapped: {loading.mapped_s:.3f} s over "
            f"{loading.reference_s:.3f} s = {loading.load:.3f} ({loading.low:.3f}-"
            f"{loading.high:.3f})",
            f"copied, as by default: {loading.copied_s:.3f} s = {loading.copied:.3f} of the "
            f"reference's mapping, with imports {loading.total:.3f}",
            f"peak memory of copying: {loading.peak:.3f} of the file "
            f"(reference {loading.reference_peak:.3f})",
        ]
    return [*lines, f"missed: {', '.join(missed)}" if missed else "every bar held"]


def _record(
    timings: Sequence[Timing], loading: Loading | None, device: torch.device, dtype: str
) -> dict[str, object]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {
        "device": name,
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": load_extra("transformers", "verify").__version__,
        "timings": [asdict(each) for each in timings],
        "means": _means(timings),
        "loading": None if loading is None else asdict(loading),
    }


if __name__ == "__main__":
    sys.exit(main())
