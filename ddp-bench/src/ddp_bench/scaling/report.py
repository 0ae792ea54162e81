"""The result as tables for people, and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import statistics

from ddp_bench.scaling.bars import Verdict
from ddp_bench.scaling.suite import SuiteResult
from ddp_bench.scaling.table import Row, Table
from ddp_bench.statistics import scaled_mad

_OPTIMIZERS = {"own": "its own optimizer", "sgd": "SGD with momentum"}


def markdown(result: SuiteResult) -> str:
    """Return the result as markdown."""
    environment = result.environment
    targets = ", ".join(f"{loss:.3f} (seed {seed})" for seed, loss in result.targets.items())
    lines = [
        f"{environment['cpu']}, torch {environment['torch']}, Python {environment['python']}, "
        f"commit {environment['commit']}{' (changed)' if environment['dirty'] else ''}",
        "",
        f"Model {result.model} with {_OPTIMIZERS[result.optimizer]}, "
        f"{len(result.targets)} seeds, base step {result.base_ms:g} ms of "
        f"which {result.rest_ms:.2f} ms are not padded, run alone {result.solo_s:.1f} s. "
        f"Loss to reach: {targets}.",
    ]
    if result.repeated:
        lines += ["", f"Runs repeated for want of pace: {result.repeated}."]
    lines += [f"\nNot run: {arm}: {why}." for arm, why in result.skipped.items()]
    table = Table(run for run in result.runs if run.arm != "solo")
    for scenario in table.scenarios:
        lines += ["", f"## {scenario}", "", *_scenario(table.rows(scenario))]
    lines += ["", "## Bars", "", *_bars(result.verdicts)]
    return "\n".join(lines) + "\n"


def _scenario(rows: list[Row]) -> list[str]:
    lines = [
        "| arm | s to the loss | spread | samples/s | loss at the end | idle, fast / slow "
        "| MB averaged a rank | realised factor |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: statistics.median(row.times())):
        runs = row.runs
        sign = "" if row.is_reached else ">"
        times = row.times()
        idle = [statistics.median(run.ranks[n].steady_idle for run in runs) for n in (0, -1)]
        lines.append(
            f"| {row.label} | {sign}{statistics.median(times):.2f} | {scaled_mad(times):.2f} "
            f"| {statistics.median(row.rates):,.0f} "
            f"| {statistics.median(run.final_loss for run in runs):.3f} "
            f"| {idle[0]:.0%} / {idle[1]:.0%} "
            f"| {statistics.median(run.payload_bytes for run in runs) / 1e6:,.0f} "
            f"| {statistics.median(run.realised_factor for run in runs):.2f} |"
        )
    return lines


def _bars(verdicts: tuple[Verdict, ...]) -> list[str]:
    lines = ["| scenario | bar | found | interval | asked | |", "|---|---|---:|---:|---:|---|"]
    for verdict in verdicts:
        found = verdict.found
        asked = f"<= {verdict.most:g}" if verdict.most is not None else f">= {verdict.least:g}"
        lines.append(
            f"| {verdict.scenario} | {verdict.bar} | {found.value:.3f} "
            f"| {found.low:.3f} to {found.high:.3f} | {asked} "
            f"| {'met' if verdict.holds else '**missed**'} |"
        )
    return lines


def as_json(result: SuiteResult) -> str:
    """Return the result as JSON."""
    facts = dataclasses.asdict(result)
    for verdict, judged in zip(facts["verdicts"], result.verdicts, strict=True):
        verdict["holds"] = judged.holds
    return json.dumps({**facts, "passed": result.passed}, indent=1) + "\n"
