"""How the record plane bears width and length: ranks, records, clients, memory, the saved page.

These figures are of the plane itself, without a training beside it.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flodl.records import NodeReport, RecordTree
from flodl.records.board import RunBoard
from flodl.web.answers import node_json
from flodl.web.archive import portal_file

VARIETY = 30
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One measured value and the highest or lowest that is allowed."""

    name: str
    value: float
    unit: str
    bar: float
    is_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the bar is reached."""
        return self.value >= self.bar if self.is_least else self.value <= self.bar


def leaves(count: int, tick: int, *, keys: int = 12, hosts: bool = False) -> list[NodeReport]:
    """Return one window's reports of so many ranks, eight to a host or all below the root."""
    return [
        NodeReport(
            path=f"root/host{rank // 8}/rank{rank}" if hosts else f"root/rank{rank}",
            metrics={f"k{key}": rank + key + tick / 1000 for key in range(keys)},
            work=10,
            tick=tick,
            epoch=tick // 100,
            step=tick,
        )
        for rank in range(count)
    ]


def page_bytes(ranks: int, *, limit: int = 64) -> int:
    """Return what a page at the root gets per window: the node and at most ``limit`` children."""
    tree = RecordTree()
    made = tree.publish(leaves(ranks, 0))
    shown = {"root", *tree.child_paths("root", slice(limit))}
    return sum(len(record.line) for record in made if record.path in shown)


def node_seconds(tree: RecordTree, path: str, times: int = 200) -> list[float]:
    """Return how long single answers about one node take, each after a change of its level."""
    taken = []
    for tick in range(times):
        tree.publish(
            [NodeReport(path=f"{path}/rank0", metrics={"k0": 1.0}, work=1, tick=10_000 + tick)]
        )
        started = time.perf_counter()
        node_json(tree.node(path, limit=64))
        taken.append(time.perf_counter() - started)
    return sorted(taken)


def grown_tree(branches: int) -> RecordTree:
    """Return a tree with 300 ranks below one host, and more nodes elsewhere."""
    tree = RecordTree()
    tree.publish(
        [
            NodeReport(path=f"root/a/rank{rank}", metrics={"k0": 1.0}, work=1, tick=0)
            for rank in range(300)
        ]
    )
    tree.publish(
        [
            NodeReport(path=f"root/b/rank{rank}", metrics={"k0": 1.0}, work=1, tick=0)
            for rank in range(branches)
        ]
    )
    return tree


def again(templates: Sequence[NodeReport], tick: int) -> list[NodeReport]:
    """Return reports of another window with values that were made before, which is cheap."""
    return [
        NodeReport(
            path=held.path,
            metrics=held.metrics,
            work=held.work,
            tick=tick,
            epoch=tick // 100,
            step=tick,
        )
        for held in templates
    ]


def memory_mib(ticks: int) -> tuple[float, float]:
    """Return the growth of memory over so many windows of 300 ranks, and over the last third.

    Values repeat after :data:`VARIETY` windows; nothing is kept of a report but copies of them.
    """
    templates = [leaves(300, tick, keys=16, hosts=True) for tick in range(VARIETY)]
    tree, start = RecordTree(), _resident()
    after_two_thirds = 0
    for tick in range(ticks):
        tree.publish(again(templates[tick % VARIETY], tick))
        if tick == 2 * ticks // 3:
            after_two_thirds = _resident()
    end = _resident()
    return (end - start) / _MIB, (end - after_two_thirds) / _MIB


def run(*, ticks: int) -> list[Figure]:
    """Measure everything; memory over so many windows (30,000 are ten million records)."""
    tree = RecordTree()
    batches = [leaves(300, tick) for tick in range(30)]
    ticked = statistics.median(_timed(partial(tree.publish, batch)) for batch in batches)
    small, large = node_seconds(grown_tree(300), "root/a"), node_seconds(grown_tree(3600), "root/a")
    growth, late_growth = memory_mib(ticks)
    page, page_s = _page_of_340_nodes()
    return [
        Figure(name="records taken in", value=301 / ticked, unit="/s", bar=20_000, is_least=True),
        Figure(name="node p99", value=1000 * small[-3], unit="ms", bar=5.0),
        Figure(
            name="node, other branches 12x",
            value=statistics.median(large) / statistics.median(small),
            unit="x",
            bar=1.5,
        ),
        Figure(
            name="page bytes, 300 to 64", value=page_bytes(300) / page_bytes(64), unit="x", bar=1.5
        ),
        Figure(name=f"memory, {ticks} windows", value=growth, unit="MiB", bar=200),
        Figure(name="memory, last third", value=late_growth, unit="MiB", bar=10),
        Figure(name="page of 340 nodes", value=page / _MIB, unit="MiB", bar=32),
        Figure(name="page written", value=page_s, unit="s", bar=5),
    ]


def _page_of_340_nodes() -> tuple[int, float]:
    board = RunBoard()
    for tick in range(300):
        board.tree.publish(leaves(300, tick, keys=16, hosts=True))
    started = time.perf_counter()
    page = portal_file(board)
    return len(page), time.perf_counter() - started


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and with ``--gate`` fail where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="ddp_bench.overhead.dashboard_plane")
    parser.add_argument("--ticks", type=int, default=3000, help="windows of the memory figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--gate", action="store_true", help="exit 1 where a bar is missed")
    options = parser.parse_args(arguments)
    return answer(run(ticks=options.ticks), as_json=options.json, is_gate=options.gate)


def answer(figures: Sequence[Figure], *, as_json: bool, is_gate: bool) -> int:
    """Print figures, and return the exit code: 1 where a bar that is a gate is missed."""
    if as_json:
        facts = [{**dataclasses.asdict(figure), "holds": figure.holds} for figure in figures]
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    for figure in () if as_json else figures:
        missed = "" if figure.holds else "  MISSED"
        bar = f"{'at least' if figure.is_least else 'at most'} {figure.bar:g}"
        sys.stdout.write(f"{figure.name:28} {figure.value:10.2f} {figure.unit:4} ({bar}){missed}\n")
    return 1 if is_gate and not all(figure.holds for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
