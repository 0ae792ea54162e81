"""Command line of the loader suite: ``python -m ddp_bench.loading``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.arms import TORCH_WORKERS
from ddp_bench.loading.suite import BATCHES, ROUNDS, SuiteConfig, SuiteResult, run
from flodl.checkpoint.files import write_atomically
from flodl.core.errors import ConfigError
from flodl.core.units import format_bytes
from flodl.device import parse_device


def render(result: SuiteResult) -> str:
    """Return the result as tables for people."""
    lines = [
        f"{result.device}, torch {result.torch_version}, scale {result.scale:g}, "
        f"{result.rounds} interleaved rounds, threads of torch: {result.threads}",
    ]
    for case in result.cases:
        lines += [
            "",
            case.name,
            f"  {'loader':<34}{'samples/s':>12}{'with 5 ms':>12}{'idle':>8}{'first ms':>10}"
            f"{'gap':>7}{'CPU s/M':>9}{'RAM':>9}{'VRAM':>9}",
        ]
        lines += [
            f"  {arm.side + ' ' + arm.name:<34}{arm.samples_per_s:>12,.0f}"
            f"{arm.computing_samples_per_s:>12,.0f}{arm.idle_share:>8.1%}"
            f"{arm.first_batch_ms:>10.1f}{arm.epoch_gap_batches:>7.2f}"
            f"{arm.host_cpu_s_per_million:>9.1f}{format_bytes(arm.ram_bytes):>9}"
            f"{'-' if arm.vram_bytes is None else format_bytes(arm.vram_bytes):>9}"
            for arm in case.arms
        ]
        lines += [
            f"  {verdict.bar:<34}{verdict.found:>12.3g}"
            + ("  " if verdict.high is None else f" (up to {verdict.high:.3g})  ")
            + (f">= {verdict.least:g}" if verdict.least is not None else f"<= {verdict.most:g}")
            + (": ok" if verdict.holds else ": MISSED")
            for verdict in case.verdicts
        ]
    return "\n".join(lines) + "\n"


def as_json(result: SuiteResult) -> str:
    """Return the result as JSON for programs."""
    facts = dataclasses.asdict(result)
    for case, found in zip(facts["cases"], result.cases, strict=True):
        for verdict, judged in zip(case["verdicts"], found.verdicts, strict=True):
            verdict["holds"] = judged.holds
    return json.dumps({**facts, "passed": result.passed}, indent=2) + "\n"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0 and up to 1")
    return share


def _workers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r}: expected counts such as 0,2,4")
    return tuple(int(word) for word in words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite from the command line; 1 if a bar is missed under ``--gate``."""
    parser = argparse.ArgumentParser(
        prog="python -m ddp_bench.loading",
        description="How fast batches reach the device, against torch's own loader.",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--output", type=Path, default=None, help="file to write the JSON to")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--device", default=None, help="default: the first GPU, else the CPU")
    parser.add_argument(
        "--scale", type=_share, default=None, help="share of the samples (GPU: 1, CPU: 0.1)"
    )
    parser.add_argument("--rounds", type=_count, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument(
        "--batches", type=_count, default=BATCHES, help=f"of an epoch at most (default: {BATCHES})"
    )
    parser.add_argument(
        "--workers", type=_workers, default=TORCH_WORKERS, help="of the loaders (0,2,4,8)"
    )
    parser.add_argument("--threads", type=_count, default=1, help="of torch (default: 1)")
    parser.add_argument("--case", action="append", default=[], help="run this case only")
    options = parser.parse_args(argv)
    try:
        device = parse_device(options.device or ("cuda:0" if torch.cuda.is_available() else "cpu"))
        config = SuiteConfig(
            device=device,
            scale=options.scale or (1.0 if device.type == "cuda" else 0.1),
            rounds=options.rounds,
            batches=options.batches,
            workers=options.workers,
            threads=options.threads,
            cases=tuple(options.case),
        )
        result = run(config)
    except (BenchError, ConfigError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if options.output is not None:
        with write_atomically(options.output) as file:
            file.write(as_json(result).encode())
    sys.stdout.write(as_json(result) if options.json else render(result))
    return 1 if options.gate and not result.passed else 0


if __name__ == "__main__":
    sys.exit(main())
