"""How long a run takes to begin, and a rank to come back: ``python -m ddp_bench.scaling startup``.

A run and an ``import torch`` in a fresh process take turns. The figure is the time from ``run()``
until both ranks have trained a batch, less the import next to it; then one rank is killed, and the
time counts until a batch is trained by what replaces it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddp_bench.errors import BenchError
from ddp_bench.progress import to_stderr
from ddp_bench.scaling.crew import user_environment
from ddp_bench.scaling.startup_program import CALLED, FIRST, STOP
from ddp_bench.statistics import scaled_mad
from flodl.checkpoint.files import write_atomically

PAIRS = 5
MOST_OVER_IMPORT_S = 2.0
MOST_RESPAWN_S = 1.0
_LIMIT_S = 90.0
_IMPORT = "import time; a = time.perf_counter(); import torch; print(time.perf_counter() - a)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One run and the import beside it, in seconds."""

    import_s: float
    started_s: float
    """From ``run()`` until both ranks had trained a batch."""
    respawned_s: float
    """From the kill of a rank until its successor had trained a batch."""

    @property
    def over_import_s(self) -> float:
        """What starting takes beyond one import."""
        return self.started_s - self.import_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One bar of this measurement."""

    bar: str
    median_s: float
    spread_s: float
    """Scaled median distance from the median."""
    most_s: float

    @property
    def holds(self) -> bool:
        """Whether the median is within its limit."""
        return self.median_s <= self.most_s


def judge(pairs: Sequence[Pair]) -> list[Verdict]:
    """Return the verdicts on all pairs."""
    rows = (
        (
            "both ranks trained a batch, over one import of torch",
            "over_import_s",
            MOST_OVER_IMPORT_S,
        ),
        ("a killed rank's successor trained a batch", "respawned_s", MOST_RESPAWN_S),
    )
    found = []
    for bar, name, most_s in rows:
        values = [getattr(pair, name) for pair in pairs]
        middle, spread = statistics.median(values), scaled_mad(values)
        found.append(Verdict(bar=bar, median_s=middle, spread_s=spread, most_s=most_s))
    return found


def measure(count: int, say: Callable[[str], None]) -> list[Pair]:
    """Measure pairs; which of the two comes first alternates.

    Raises:
        BenchError: A run did not begin, or a rank did not come back.
    """
    pairs = []
    for number in range(count):
        if number % 2:
            started_s, respawned_s = _run_once()
            import_s = _import_once()
        else:
            import_s = _import_once()
            started_s, respawned_s = _run_once()
        pairs.append(Pair(import_s=import_s, started_s=started_s, respawned_s=respawned_s))
        say(f"import {import_s:.2f} s, started {started_s:.2f} s, back again {respawned_s:.2f} s")
    return pairs


def _import_once() -> float:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT],
        capture_output=True,
        text=True,
        check=True,
        timeout=_LIMIT_S,
        env=user_environment(),
    )
    return float(done.stdout)


def _run_once() -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="flodl-startup-") as name:
        folder = Path(name)
        log = folder / "log.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "ddp_bench.scaling.startup_program", name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=user_environment(),
            )
            try:
                return _watch(folder, process)
            except BenchError as error:
                error.add_note(log.read_text(encoding="utf-8", errors="replace")[-800:])
                raise
            finally:
                (folder / STOP).touch()
                try:
                    process.wait(_LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _watch(folder: Path, process: subprocess.Popen[bytes]) -> tuple[float, float]:
    first = _firsts(folder, process, 2)
    called = float((folder / CALLED).read_text(encoding="ascii"))
    started_s = max(first.values()) - called
    victim = max(first)
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    again = _firsts(folder, process, 3)
    (successor,) = again.keys() - first.keys()
    return started_s, again[successor] - killed


def _firsts(folder: Path, process: subprocess.Popen[bytes], count: int) -> dict[int, float]:
    """Wait for the first batches of so many processes, and return when each was trained."""
    deadline = time.monotonic() + _LIMIT_S
    prefix = FIRST.format("pid")
    while time.monotonic() < deadline and process.poll() is None:
        names = [path for path in folder.glob(f"{prefix}*") if path.suffix != ".draft"]
        if len(names) >= count:
            return {
                int(path.name.removeprefix(prefix)): float(path.read_text(encoding="ascii"))
                for path in names
            }
        time.sleep(0.005)
    raise BenchError(f"{count} processes were to train a batch; they did not")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure from the command line; 1 if a bar is missed under ``--gate``."""
    parser = argparse.ArgumentParser(
        prog="python -m ddp_bench.scaling startup", description="How long a run takes to begin."
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"default: {PAIRS}")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--output", type=Path, default=None, help="file to write JSON to")
    options = parser.parse_args(argv)
    if options.pairs < 1:
        parser.error(f"--pairs {options.pairs}: expected 1 or more")
    try:
        pairs = measure(options.pairs, to_stderr)
    except BenchError as error:
        sys.stderr.write("\n".join([str(error), *getattr(error, "__notes__", ())]) + "\n")
        return 1
    verdicts = judge(pairs)
    for verdict in verdicts:
        sys.stdout.write(
            f"{verdict.bar}: {verdict.median_s:.2f} s (spread {verdict.spread_s:.2f}), "
            f"<= {verdict.most_s:g} s: {'met' if verdict.holds else 'MISSED'}\n"
        )
    if options.output is not None:
        facts = {
            "pairs": [dataclasses.asdict(pair) for pair in pairs],
            "bars": [{**dataclasses.asdict(each), "holds": each.holds} for each in verdicts],
        }
        with write_atomically(options.output) as file:
            file.write((json.dumps(facts, indent=1) + "\n").encode())
    return 1 if options.gate and not all(verdict.holds for verdict in verdicts) else 0
