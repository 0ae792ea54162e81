"""What a graph costs over the same model written by hand: forward on the CPU, small sizes.

Run: python -m ddp_bench.speed.graph_overhead [--rounds 60] [--models mlp,convnet] [--bar 1.02]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ddp_bench.speed.models import BY_NAME, SpeedModel
from flodl.graph import FlowBuilder

IDENTITY_NODES = 20


@dataclass(frozen=True, slots=True)
class Overhead:
    """Times of one model, in microseconds.

    Attributes:
        name: The model.
        plain_us: Median forward of the hand-written model.
        graph_us: Median forward of the graph.
        ratio: Median of graph over plain, taken round by round.
    """

    name: str
    plain_us: float
    graph_us: float
    ratio: float


def measure(
    name: str, plain: Callable[[], object], graph: Callable[[], object], rounds: int, calls: int
) -> Overhead:
    """Return the times of two callables, in rounds that alternate which goes first."""
    times: tuple[list[float], list[float]] = ([], [])
    ratios = []
    for number in range(rounds + 2):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        spent = [0.0, 0.0]
        for which in order:
            function = (plain, graph)[which]
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            spent[which] = (time.perf_counter() - begin) / calls * 1e6
        if number >= 2:  # two rounds to warm up
            times[0].append(spent[0])
            times[1].append(spent[1])
            ratios.append(spent[1] / spent[0])
    return Overhead(
        name, statistics.median(times[0]), statistics.median(times[1]), statistics.median(ratios)
    )


def measure_model(model: SpeedModel, rounds: int) -> Overhead:
    """Return the overhead of one of the ten, without gradients, tags kept as usual."""
    plain, graph = model.pair(is_small=True)
    inputs, _ = model.small.batch(torch.Generator().manual_seed(0))
    with torch.no_grad():
        begin = time.perf_counter()
        plain(inputs)
        plain(inputs)
        once = (time.perf_counter() - begin) / 2
        calls = max(1, min(50, round(0.02 / once)))
        return measure(model.name, lambda: plain(inputs), lambda: graph(inputs), rounds, calls)


class Identities(nn.Module):
    """Modules that do nothing, one after the other, as one would write it."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for number in range(count):
            setattr(self, f"step{number}", nn.Identity())
        body = "".join(f"    x = self.step{number}(x)\n" for number in range(count))
        namespace: dict[str, Callable[..., Tensor]] = {}
        exec(f"def run(self, x):\n{body}    return x\n", namespace)  # noqa: S102 - own text
        self._run = namespace["run"]

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return self._run(self, x)


def measure_identities(rounds: int, count: int = IDENTITY_NODES) -> Overhead:
    """Return the overhead of the graph alone: identity modules, every one tagged."""
    plain, flow = Identities(count), FlowBuilder()
    for number in range(count):
        flow = flow.through(nn.Identity()).tag(f"t{number}")
    graph, x = flow.build(), torch.ones(1)
    name = f"{count} identities"
    return measure(name, lambda: plain(x), lambda: graph(x), rounds, 200)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when a model is above the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--models", default=",".join(BY_NAME))
    parser.add_argument("--bar", type=float, default=1.02)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = [measure_identities(given.rounds)]
    rows += [measure_model(BY_NAME[name], given.rounds) for name in given.models.split(",")]
    print(f"{'model':<18}{'plain us':>12}{'graph us':>12}{'ratio':>9}")  # noqa: T201 - its job
    for row in rows:
        line = f"{row.name:<18}{row.plain_us:>12.1f}{row.graph_us:>12.1f}{row.ratio:>9.4f}"
        print(line)  # noqa: T201
    above = [row.name for row in rows[1:] if row.ratio > given.bar]
    if above:
        print(f"above {given.bar}: {', '.join(above)}")  # noqa: T201
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
