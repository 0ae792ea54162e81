"""Command line of the loader suite: ``python -m ddp_bench.loading``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

import torch

from ddp_bench.errors import BenchError
from ddp_bench.loading.suite import SuiteConfig, SuiteResult, run


def render(result: SuiteResult) -> str:
    """Return the result as tables for people."""
    lines = [
        f"{result.device}, torch {result.torch_version}, scale {result.scale:g}, "
        f"{result.rounds} interleaved rounds",
    ]
    for case in result.cases:
        lines += [
            "",
            case.name,
            f"  {'loader':<34}{'samples/s':>12}{'with 5 ms':>12}{'idle':>8}{'first ms':>10}"
            f"{'gap':>7}{'CPU s':>8}",
        ]
        lines += [
            f"  {arm.side + ' ' + arm.name:<34}{arm.samples_per_s:>12,.0f}"
            f"{arm.computing_samples_per_s:>12,.0f}{arm.idle_share:>8.1%}"
            f"{arm.first_batch_ms:>10.1f}{arm.epoch_gap_batches:>7.2f}"
            f"{arm.host_cpu_s_per_epoch:>8.2f}"
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite from the command line; 1 if a bar is missed under ``--gate``."""
    defaults = {field.name: field.default for field in dataclasses.fields(SuiteConfig)}
    parser = argparse.ArgumentParser(
        prog="python -m ddp_bench.loading",
        description="How fast batches reach the device, against torch's own loader.",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--device", default=None, help="default: the first GPU, else the CPU")
    parser.add_argument("--scale", type=float, default=None, help="share of the samples")
    parser.add_argument("--rounds", type=int, default=defaults["rounds"])
    parser.add_argument("--batches", type=int, default=defaults["batches"])
    parser.add_argument("--workers", default="0,2,4,8", help="of torch's loader")
    parser.add_argument("--case", action="append", default=[], help="run this case only")
    options = parser.parse_args(argv)
    name = options.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    scale = options.scale or (1.0 if device.type == "cuda" else 0.1)
    config = SuiteConfig(
        device=device,
        scale=scale,
        rounds=max(1, options.rounds),
        batches=max(1, options.batches),
        workers=tuple(int(count) for count in options.workers.split(",")),
        cases=tuple(options.case),
    )
    try:
        result = run(config)
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(as_json(result) if options.json else render(result))
    return 1 if options.gate and not result.passed else 0


if __name__ == "__main__":
    sys.exit(main())
