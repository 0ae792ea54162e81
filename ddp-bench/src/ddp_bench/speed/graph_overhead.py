"""What a graph costs over the same model written by hand: forward on the CPU, small sizes.

Run: python -m ddp_bench.speed.graph_overhead [--rounds 40] [--models mlp,convnet] [--bar 1.02]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ddp_bench.speed.models import BY_NAME, SpeedModel
from flodl.graph import FlowBuilder

IDENTITY_NODES = 20
_FEW, _MANY = 20, 120
_CALL_US, _NODE_US = 5.0, 0.2
_ROUND_SECONDS = 0.06
_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Overhead:
    """Processor times of one model, in microseconds, and how much longer the graph takes.

    Attributes:
        name: The model.
        plain_us: Median forward of the hand-written model.
        graph_us: Median forward of the graph.
        extra_us: Median over rounds of graph minus plain.
        ratio: Median over rounds of graph over plain.
        low: Lower end of the ratio's 95 % bootstrap interval over rounds.
        high: Upper end.
        spread: Scaled median absolute deviation of the ratio over rounds.
        rounds: How many.
        calls: Calls of each side in a round.
    """

    name: str
    plain_us: float
    graph_us: float
    extra_us: float
    ratio: float
    low: float
    high: float
    spread: float
    rounds: int
    calls: int


def measure(
    name: str, plain: Callable[[], object], graph: Callable[[], object], rounds: int, calls: int
) -> Overhead:
    """Return the times of two callables that take turns call by call.

    A round is ``calls`` calls of each in the order plain, graph, graph, plain, and its sample the
    ratio of the two medians: what slows the machine down for a while slows both sides. Time is
    the processor time of this thread, so that other work on the machine is not counted; both must
    run in one thread.
    """
    times: tuple[list[float], list[float]] = ([], [])
    with _collector_off():
        _round(plain, graph, max(2, calls // 2))  # to warm up
        for _ in range(rounds):
            for kept, new in zip(times, _round(plain, graph, calls), strict=True):
                kept.append(new)
            gc.collect()
    ratios = [two / one for one, two in zip(*times, strict=True)]
    ratio = statistics.median(ratios)
    low, high = interval(ratios)
    return Overhead(
        name,
        statistics.median(times[0]),
        statistics.median(times[1]),
        statistics.median(two - one for one, two in zip(*times, strict=True)),
        ratio,
        low,
        high,
        1.4826 * statistics.median(abs(item - ratio) for item in ratios),
        rounds,
        calls,
    )


def interval(samples: Sequence[float], resamples: int = _RESAMPLES) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median."""
    draw = random.Random(0)  # noqa: S311 - statistics, repeatable
    medians = sorted(
        statistics.median(draw.choices(samples, k=len(samples))) for _ in range(resamples)
    )
    return medians[round(0.025 * (resamples - 1))], medians[round(0.975 * (resamples - 1))]


def _round(
    plain: Callable[[], object], graph: Callable[[], object], calls: int
) -> tuple[float, float]:
    spent: tuple[list[int], list[int]] = ([], [])
    clock = time.thread_time_ns
    for _ in range((calls + 1) // 2):
        for function, kept in (
            (plain, spent[0]),
            (graph, spent[1]),
            (graph, spent[1]),
            (plain, spent[0]),
        ):
            begin = clock()
            function()
            kept.append(clock() - begin)
    return statistics.median(spent[0]) / 1000, statistics.median(spent[1]) / 1000


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def share_weights(plain: nn.Module, graph: nn.Module) -> None:
    """Let the graph compute with the very tensors of its plain twin.

    Equal copies lie elsewhere in memory, which alone makes a forward up to some percent faster or
    slower.

    Raises:
        ValueError: The two do not hold equal tensors in one order.
    """
    ours = [*graph.parameters(), *graph.buffers()]
    theirs = [*plain.parameters(), *plain.buffers()]
    if len(ours) != len(theirs) or not all(map(torch.equal, ours, theirs)):
        raise ValueError("the graph and its plain twin hold different weights")
    for our, their in zip(ours, theirs, strict=True):
        our.data = their.data


def measure_model(model: SpeedModel, rounds: int) -> Overhead:
    """Return the overhead of one of the ten, without gradients, tags kept as usual."""
    plain, graph = model.pair(is_small=True)
    share_weights(plain, graph)
    inputs, _ = model.small.batch(torch.Generator().manual_seed(0))
    with torch.no_grad():
        plain(inputs)
        begin = time.thread_time()
        plain(inputs)
        once = time.thread_time() - begin
        calls = max(6, min(50, round(_ROUND_SECONDS / once)))
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
    return measure(f"{count} identities", lambda: plain(x), lambda: graph(x), rounds, 200)


@dataclass(frozen=True, slots=True)
class Budget:
    """What the graph's own code costs, from identity modules: a share a call, a share a node.

    Attributes:
        call_us: Microseconds a call over the hand-written forward; negative when faster.
        node_us: Further microseconds a node.
        used: The largest share of the budget that was needed.
    """

    call_us: float
    node_us: float
    used: float

    @property
    def holds(self) -> bool:
        """Whether it stays within 5 us a call and 0.2 us a node."""
        return self.used <= 1


def budget_of(few: Overhead, many: Overhead, counts: tuple[int, int] = (_FEW, _MANY)) -> Budget:
    """Return the two shares, from the extra time at two numbers of nodes."""
    node = (many.extra_us - few.extra_us) / (counts[1] - counts[0])
    used = max(
        row.extra_us / (_CALL_US + _NODE_US * count)
        for row, count in zip((few, many), counts, strict=True)
    )
    return Budget(few.extra_us - node * counts[0], node, used)


def table(rows: Sequence[Overhead]) -> str:
    """Return the rows as text."""
    head = f"{'model':<18}{'plain us':>11}{'graph us':>11}{'extra us':>10}{'ratio':>9}"
    lines = [f"{head}  {'95 % interval':<17}{'spread':>8}{'rounds':>8}{'calls':>7}"]
    for row in rows:
        line = f"{row.name:<18}{row.plain_us:>11.1f}{row.graph_us:>11.1f}{row.extra_us:>10.2f}"
        between = f"{row.low:.4f}-{row.high:.4f}"
        line += f"{row.ratio:>9.4f}  {between:<17}{row.spread:>8.4f}{row.rounds:>8}{row.calls:>7}"
        lines.append(line)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when the upper end of a model's interval is above the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--models", default=",".join(BY_NAME))
    parser.add_argument("--bar", type=float, default=1.02)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    few, many = (measure_identities(given.rounds, count) for count in (_FEW, _MANY))
    models = [measure_model(BY_NAME[name], given.rounds) for name in given.models.split(",")]
    budget = budget_of(few, many)
    mean = statistics.geometric_mean(row.ratio for row in models)
    print(table([few, many, *models]))  # noqa: T201 - its job
    print(  # noqa: T201
        f"geometric mean of the models: {mean:.4f}\n"
        f"identities: {budget.call_us:+.2f} us a call, {budget.node_us:+.3f} us a node; "
        f"budget {_CALL_US} and {_NODE_US}: {'holds' if budget.holds else 'EXCEEDED'}"
    )
    above = [row.name for row in models if row.high > given.bar]
    if above:
        print(f"above {given.bar}: {', '.join(above)}")  # noqa: T201
    return 1 if above or not budget.holds else 0


if __name__ == "__main__":
    sys.exit(main())
