"""What watching a run costs it: one training step with and without each part of the monitor.

A step is matrix work calibrated to about five milliseconds, in epochs of the same length. Each
round runs the bare loop, an arm twice, and the bare loop again, or the other way round: a machine
that grows slower or faster meanwhile does so for both. It gives the ratio of their median steps;
the figure is the median ratio over the rounds. Clients are a process of
their own, which shares the cores with the training, as a browser on the same machine would.

Two parts are measured by themselves: a monitor that nothing is asked of, by the time of its call
in each step, which no difference of two loops could show; and the profile of a graph, on training
steps of a graph with and without it.
"""

import argparse
import dataclasses
import io
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from flodl.graph import FlowBuilder, Graph
from flodl.monitor import Monitor
from flodl.monitor.timeline import Timeline

STEP_MS = 5.0
STEPS_PER_EPOCH = 100
DEFAULT_ROUNDS = 9
DEFAULT_SECONDS = 1.0
PAGE_SHARE = 0.005
_PAGE_RUN_S = 60.0

# open streams, read them until the input ends
_CLIENTS = """
import selectors, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
target = b"/stream?path=root&alerts=root&clock=1&limit=64"
request = b"GET " + target + b" HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
selector = selectors.DefaultSelector()
for _ in range(count):
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(request)
    selector.register(client, selectors.EVENT_READ)
selector.register(sys.stdin, selectors.EVENT_READ)
print("open", flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj is sys.stdin or not key.fileobj.recv(1 << 16):
            sys.exit()
"""


class Taken(Protocol):
    """Runs a loop and returns the seconds of its steps."""

    def __call__(self, *, is_on: bool) -> list[float]:
        """Run it with a part, or without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Which parts are on, and the highest ratio that is allowed."""

    name: str
    bar: float = 1.01
    clients: int = 0
    is_served: bool = False
    reports: int = 0
    has_log: bool = False
    has_timeline: bool = False
    has_page: bool = False
    is_attacked: bool = False
    """Whether a client that means harm does what it can meanwhile."""


ARMS = (
    Arm(name="console monitor"),
    Arm(name="server, 1 client", is_served=True, clients=1),
    Arm(name="server, 50 clients", is_served=True, clients=50),
    Arm(name="20 reports per epoch", reports=20),
    Arm(name="record log", has_log=True),
    Arm(name="timeline", has_timeline=True),
    Arm(name="saved page", has_page=True),
    Arm(
        name="everything, 50 clients",
        bar=1.03,
        clients=50,
        is_served=True,
        reports=20,
        has_log=True,
        has_timeline=True,
        has_page=True,
    ),
    Arm(name="server, under attack", bar=1.03, is_served=True, is_attacked=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmResult:
    """Ratios of the median step with the arm to the one without, one per round."""

    name: str
    bar: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.ratios)

    @property
    def holds(self) -> bool:
        """Whether the bar is reached."""
        return self.ratio <= self.bar


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardResult:
    """All arms of one run, with what it ran on."""

    processor: str
    torch_version: str
    step_ms: float
    arms: tuple[ArmResult, ...]
    page_s: float
    """Seconds to save the page of a run of a minute."""

    @property
    def passed(self) -> bool:
        """Whether every bar is reached."""
        return all(arm.holds for arm in self.arms) and self.page_s <= PAGE_SHARE * _PAGE_RUN_S


def run(
    *,
    rounds: int = DEFAULT_ROUNDS,
    seconds: float = DEFAULT_SECONDS,
    arms: Sequence[Arm] = ARMS,
) -> DashboardResult:
    """Measure every arm against the bare loop.

    Args:
        rounds: How often each arm runs.
        seconds: Length of each run, of which a round has four.
        arms: What is measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step, step_ms = calibrated_step(STEP_MS)
        steps = max(STEPS_PER_EPOCH, round(seconds * 1000 / step_ms))
        measured = [_idle_monitor(step, step_ms, steps, rounds)]
        measured += [_measured(arm, step, steps, rounds) for arm in arms]
        measured.append(_profiled(steps, rounds))
        return DashboardResult(
            processor=_processor(),
            torch_version=torch.__version__,
            step_ms=step_ms,
            arms=tuple(measured),
            page_s=_page_seconds(),
        )
    finally:
        torch.set_num_threads(threads)


def calibrated_step(wanted_ms: float) -> tuple[Callable[[], torch.Tensor], float]:
    """Return a step of many small operations that takes about so long, and how long it takes."""
    x = torch.randn(128, 128, generator=torch.Generator().manual_seed(0))
    repeats = 8

    def step() -> torch.Tensor:
        y = x
        for _ in range(repeats):
            y = torch.tanh(y @ x)
        return y.mean()

    while True:
        taken = statistics.median(_timed(step) for _ in range(21)) * 1000
        if taken >= wanted_ms * 0.8:
            return step, taken
        repeats = max(repeats + 1, round(repeats * min(4.0, wanted_ms / taken)))


def _measured(arm: Arm, step: Callable[[], torch.Tensor], steps: int, rounds: int) -> ArmResult:
    def taken(*, is_on: bool) -> list[float]:
        return _watched_steps(arm, step, steps) if is_on else _bare_steps(step, steps)

    return ArmResult(name=arm.name, bar=arm.bar, ratios=_ratios(taken, rounds))


def _ratios(taken: Taken, rounds: int) -> tuple[float, ...]:
    """Return the ratio of median steps with a part to those without, for each round."""
    ratios = []
    for number in range(rounds):
        pair: dict[bool, list[float]] = {True: [], False: []}
        first = number % 2 == 1
        for is_on in (first, not first, not first, first):
            pair[is_on] += taken(is_on=is_on)
        ratios.append(statistics.median(pair[True]) / statistics.median(pair[False]))
    return tuple(ratios)


def _idle_monitor(
    step: Callable[[], torch.Tensor], step_ms: float, steps: int, rounds: int
) -> ArmResult:
    """Return what the call of a monitor without any outlet adds to a step."""
    ratios = []
    for _ in range(rounds):
        taken = []
        with Monitor(1, progress="none") as monitor, monitor.epoch(0, steps=steps) as scope:
            for _ in range(steps):
                loss = step()
                taken.append(_timed(partial(scope.step, samples=32, loss=loss)))
        ratios.append(1 + statistics.median(taken) * 1000 / step_ms)
    return ArmResult(name="monitor, nothing asked", bar=1.002, ratios=tuple(ratios))


def _profiled(steps: int, rounds: int) -> ArmResult:
    """Return the ratio of a graph's training steps with its profile to those without."""
    graph, step = _graph_step(STEP_MS)

    def taken(*, is_on: bool) -> list[float]:
        (graph.enable_profiling if is_on else graph.disable_profiling)()
        step()
        return _bare_steps(step, steps)

    return ArmResult(name="profile of a graph", bar=1.02, ratios=_ratios(taken, rounds))


def _graph_step(wanted_ms: float) -> tuple[Graph, Callable[[], torch.Tensor]]:
    """Return a graph of twenty nodes, and a training step of it that takes about so long."""
    rows = 32
    while True:
        flow = FlowBuilder(nn.Linear(128, 128))
        for _ in range(9):
            flow = flow.through(nn.Tanh()).through(nn.Linear(128, 128))
        graph = flow.through(nn.Tanh()).build()
        x = torch.randn(rows, 128, generator=torch.Generator().manual_seed(0))

        def step(graph: Graph = graph, x: torch.Tensor = x) -> torch.Tensor:
            loss: torch.Tensor = graph(x).square().mean()
            graph.zero_grad()
            loss.backward()
            return loss

        step()
        taken = statistics.median(_timed(step) for _ in range(21)) * 1000
        if taken >= wanted_ms * 0.8:
            return graph, step
        rows = max(rows + 1, round(rows * min(4.0, wanted_ms / taken)))


def _bare_steps(step: Callable[[], torch.Tensor], steps: int) -> list[float]:
    return [_timed(step) for _ in range(steps)]


def _watched_steps(arm: Arm, step: Callable[[], torch.Tensor], steps: int) -> list[float]:
    taken: list[float] = []
    epochs = -(-steps // STEPS_PER_EPOCH)
    with watched(arm, epochs) as monitor:
        for epoch in range(epochs):
            with monitor.epoch(epoch, steps=STEPS_PER_EPOCH) as scope:
                for _ in range(STEPS_PER_EPOCH):
                    started = time.perf_counter()
                    loss = step()
                    scope.step(samples=32, loss=loss)
                    taken.append(time.perf_counter() - started)
    return taken


@contextmanager
def watched(arm: Arm, epochs: int) -> Iterator[Monitor]:
    """Yield a monitor with the parts of an arm on, and its clients connected."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if arm.has_timeline:
            stack.enter_context(Timeline(spill=folder / "timeline"))
        monitor = stack.enter_context(Monitor(epochs, stream=io.StringIO()))
        monitor.reports_per_epoch(arm.reports)
        if arm.has_log:
            monitor.record_log(folder / "records")
        if arm.has_page:
            monitor.save_html(folder / "page.html")
        if arm.is_served:
            port = int(monitor.serve(0).rpartition(":")[2])
            if arm.clients:
                stack.enter_context(_clients(port, arm.clients))
            if arm.is_attacked:
                stack.enter_context(_attack(port))
        yield monitor


def _clients(port: int, count: int) -> AbstractContextManager[None]:
    return _beside([sys.executable, "-c", _CLIENTS, str(port), str(count)])


def _attack(port: int) -> AbstractContextManager[None]:
    return _beside([sys.executable, "-m", "ddp_bench.overhead.attack", str(port)])


@contextmanager
def _beside(command: Sequence[str]) -> Iterator[None]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()
            process.stdout.read()
            process.wait()


def _page_seconds() -> float:
    """Return how long it takes to save a minute's run: 120 epochs with four reports a second."""
    with tempfile.TemporaryDirectory() as folder:
        monitor = Monitor(120, progress="none")
        for epoch in range(120):
            monitor.log(epoch, 0.5, {"loss": 1.0 / (epoch + 1), "accuracy": epoch / 120})
        taken = _timed(lambda: monitor.save_now(Path(folder) / "page.html"))
        monitor.finish()
    return taken


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def render(result: DashboardResult) -> str:
    """Return the table of a run."""
    lines = [
        f"{result.processor}; torch {result.torch_version}; steps of {result.step_ms:.1f} ms",
        f"{'':24} {'ratio':>7} {'lowest':>7} {'highest':>7} {'bar':>6}",
    ]
    lines += [
        f"{arm.name:24} {arm.ratio:7.4f} {min(arm.ratios):7.4f} {max(arm.ratios):7.4f} "
        f"{arm.bar:6.3f}{'' if arm.holds else '  MISSED'}"
        for arm in result.arms
    ]
    missed = "" if result.page_s <= PAGE_SHARE * _PAGE_RUN_S else "  MISSED"
    lines.append(f"page of a minute's run saved in {result.page_s * 1000:.0f} ms{missed}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and with ``--gate`` fail where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="ddp_bench.overhead.dashboard")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="of each run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--gate", action="store_true", help="exit 1 where a bar is missed")
    options = parser.parse_args(arguments)
    result = run(rounds=options.rounds, seconds=options.seconds)
    facts = {**dataclasses.asdict(result), "passed": result.passed}
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if options.json else render(result))
    return 1 if options.gate and not result.passed else 0


if __name__ == "__main__":
    sys.exit(main())
