"""Cost curves to 1000 ranks, simulated: ``python -m ddp_bench.scaling curves``.

The controller that decides is the real one; ranks, links and time are simulated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from ddp_bench.scaling.curve_bars import Point, Verdict, judge, judge_reality
from ddp_bench.scaling.curve_chart import chart
from flodl.checkpoint.files import write_atomically
from flodl.distributed.config import ElCheConfig
from flodl.testing.des import ReduceCost, Scenario, SpeedProfile, simulate, sync_efficiency
from flodl.testing.des.costs import Travel

WORLDS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
TRAVELS: tuple[Travel, ...] = ("ring", "star", "relay")
DYING = "1% die"
SPEEDS: tuple[str, ...] = (*get_args(SpeedProfile), DYING)
BATCHES = 200
LONG_BATCHES = 2000
LONG_TRAVEL: Travel = "measured"
RANKS_PER_HOST = 8
PROCESSES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One simulated run of the curves."""

    world: int
    speeds: str
    travel: Travel
    batches: int

    def scenario(self) -> Scenario:
        """Return what is simulated."""
        is_dying = self.speeds == DYING
        profile: SpeedProfile = "equal" if is_dying else self.speeds  # type: ignore[assignment] # one of SPEEDS
        return Scenario(
            ranks=self.world,
            batches_per_rank=self.batches,
            profile=profile,
            deaths=min(self.world - 1, max(1, self.world // 100)) if is_dying else 0,
            reduce=ReduceCost(travel=self.travel),
            ranks_per_host=RANKS_PER_HOST,
        )

    def run(self) -> Point:
        """Simulate it."""
        began = time.perf_counter()
        scenario = self.scenario()
        found = simulate(scenario)
        plain = asdict(found)
        for name in ("accounting", "rank_steps"):
            del plain[name]
        return Point(
            world=self.world,
            speeds=self.speeds,
            travel=self.travel,
            batches_per_rank=self.batches,
            hosts=scenario.cluster.hosts,
            digest=found.digest(),
            is_exact=found.is_exact,
            sync_efficiency=sync_efficiency(scenario),
            batches_per_second=found.batches_per_second,
            idle=found.idle,
            messages_per_second=found.messages_per_second,
            bytes_per_rank_second=found.bytes_per_rank_second,
            state_bytes_per_rank=found.state_bytes_per_rank,
            records_per_second=found.records_per_second,
            result=plain,
            wall_s=time.perf_counter() - began,
        )


def cells(worlds: Sequence[int], batches: int) -> list[Cell]:
    """Return all cells, the largest first: they are what others wait for at the end."""
    return [
        Cell(world=world, speeds=speeds, travel=travel, batches=batches)
        for world in sorted(worlds, reverse=True)
        for travel in TRAVELS
        for speeds in SPEEDS
    ]


def run_cells(chosen: Sequence[Cell], processes: int = PROCESSES) -> list[Point]:
    """Simulate cells, several at a time, and return their points in order."""
    if processes == 1:
        return [cell.run() for cell in chosen]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return pool.map(Cell.run, chosen, chunksize=1)


def set_hash(points: Sequence[Point]) -> str:
    """Return a hash of all that the seed decides, the same for the same code and set."""
    ordered = sorted(f"{p.world} {p.speeds} {p.travel} {p.digest}" for p in points)
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()


def simulated_pair(
    factor: float, base_ms: float, epoch_batches: int, epochs: int
) -> dict[str, Any]:
    """Return what the simulator says of two ranks as the scaling suite measures them."""
    found = simulate(
        Scenario(
            ranks=2,
            batches_per_rank=epoch_batches * epochs // 2,
            epochs=epochs,
            batch_ms=(base_ms, factor * base_ms),
            jitter=0.0,
            config=ElCheConfig.cpu_cadence(),
        )
    )
    return {"batches_per_second": found.batches_per_second, "windows": found.windows / epochs}


def _table(points: Sequence[Point]) -> str:
    lines = [
        f"{'W':>5} {'speeds':<12}{'travel':<7}{'of sum':>7}{'sync':>7}{'batches/s':>11}{'idle':>7}"
        f"{'windows':>8}{'msg/s':>8}{'B/s rank':>9}{'us/event':>9}{'ms/round':>9}{'B rank':>8}"
    ]
    lines += [
        f"{p.world:>5} {p.speeds:<12}{p.travel:<7}{p.efficiency:>7.3f}{p.sync_efficiency:>7.3f}"
        f"{p.batches_per_second:>11,.1f}{p.idle:>7.1%}{p.result['windows']:>8}"
        f"{p.messages_per_second:>8,.0f}{p.bytes_per_rank_second:>9,.0f}{p.event_us:>9.1f}"
        f"{p.round_ms:>9.2f}{p.state_bytes_per_rank:>8,.0f}"
        for p in sorted(points, key=lambda p: (p.travel, p.speeds, p.world))
    ]
    return "\n".join(lines) + "\n"


def _verdict_lines(verdicts: Sequence[Verdict]) -> str:
    return "".join(
        f"{each.bar}: {each.found:.4g}, {each.asked}: {'met' if each.holds else 'MISSED'}\n"
        for each in verdicts
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate the curves from the command line; 1 if a bar is missed under ``--gate``."""
    parser = argparse.ArgumentParser(
        prog="python -m ddp_bench.scaling curves",
        description="What up to 1000 ranks would do, by the real controller.",
    )
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"a rank ({BATCHES})")
    parser.add_argument("--most", type=int, default=WORLDS[-1], help="ranks at most (1000)")
    parser.add_argument(
        "--long", action="store_true", help=f"also {LONG_BATCHES} batches a rank at the most ranks"
    )
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"({PROCESSES})")
    parser.add_argument(
        "--against", type=Path, default=None, help="JSON of the scaling suite to compare W=2 with"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/curves"), help="folder")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a bar is missed")
    options = parser.parse_args(argv)
    if options.batches < 1 or options.processes < 1 or options.most < WORLDS[0]:
        parser.error("--batches and --processes: expected 1 or more; --most: 2 or more")
    began = time.perf_counter()
    worlds = [world for world in WORLDS if world <= options.most]
    chosen = cells(worlds, options.batches)
    points = run_cells(chosen, options.processes)
    wall_s = time.perf_counter() - began
    again = min(chosen, key=lambda cell: abs(cell.world - 64))
    is_same = again.run().digest == points[chosen.index(again)].digest
    verdicts = judge(points, wall_s=wall_s, is_same=is_same)
    long = None
    if options.long:
        long = Cell(
            world=worlds[-1], speeds="lognormal", travel=LONG_TRAVEL, batches=LONG_BATCHES
        ).run()
        verdicts.append(
            Verdict(bar=f"throughput, W={long.world}, lognormal", found=long.efficiency, least=0.88)
        )
    if options.against is not None:
        measured = json.loads(options.against.read_text(encoding="utf-8"))
        verdicts += judge_reality(measured, simulated_pair)
    facts = {
        "hash": set_hash(points),
        "wall_s": wall_s,
        "points": [asdict(point) for point in points],
        "long": None if long is None else asdict(long),
        "bars": [{**asdict(each), "holds": each.holds} for each in verdicts],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("curves.json", json.dumps(facts, indent=1) + "\n"),
        ("curves.txt", _table(points)),
        ("curves.svg", chart([p for p in points if p.travel == "ring"])),
    ):
        with write_atomically(options.output / name) as file:
            file.write(text.encode())
    sys.stdout.write(_table(points) + f"{len(points)} runs in {wall_s:.0f} s, {facts['hash']}\n")
    sys.stdout.write(_verdict_lines(verdicts))
    return 1 if options.gate and not all(each.holds for each in verdicts) else 0
