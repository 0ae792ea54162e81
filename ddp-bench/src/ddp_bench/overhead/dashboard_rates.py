"""How fast single parts of watching are: calls on the training's thread, log, poller, streams."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ddp_bench.overhead.dashboard_plane import Figure, answer
from flodl.core.resources import GpuSnapshot
from flodl.device.sampler import ResourceSampler
from flodl.metrics import ScalarScope, record_scalar
from flodl.monitor import Monitor
from flodl.records import NodeReport, RecordTree
from flodl.records.board import RunBoard
from flodl.records.journal import RecordLog
from flodl.testing.fake_run import serve_board

CALLS = 20_000
SECONDS = 5.0
_DEVICES = 8

# open streams of the root, count the records they get until the input ends
_READERS = """
import selectors, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
request = b"GET /stream?path=root HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
selector, frames = selectors.DefaultSelector(), 0
for _ in range(count):
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(request)
    selector.register(client, selectors.EVENT_READ)
selector.register(sys.stdin, selectors.EVENT_READ)
print("open", flush=True)
while True:
    ready = selector.select(1.0)
    for key, _ in ready:
        if key.fileobj is not sys.stdin:
            frames += key.fileobj.recv(1 << 18).count(b"\\nevent: record")
    if any(key.fileobj is sys.stdin for key, _ in ready) and len(ready) == 1:
        print(frames, flush=True)
        sys.exit()
"""


class EightCards:
    """A probe of eight GPUs that costs nothing itself."""

    def read(self) -> list[GpuSnapshot]:
        """Return eight busy GPUs."""
        return [
            GpuSnapshot(
                device_index=index,
                name="card",
                util_percent=90.0,
                vram_used_bytes=1 << 30,
                vram_total_bytes=8 << 30,
                power_w=200.0,
                temp_c=60.0,
            )
            for index in range(_DEVICES)
        ]


def call_us(work: Callable[[], object], calls: int = CALLS) -> float:
    """Return what one call takes of its thread: the median of ten stretches, in microseconds.

    Time in which the thread had to wait for a core is not counted.
    """
    stretches = []
    for _ in range(10):
        started = time.thread_time()
        for _ in range(calls // 10):
            work()
        stretches.append((time.thread_time() - started) / (calls // 10))
    return statistics.median(stretches) * 1e6


def step_figures() -> list[Figure]:
    """Return what a step costs that reports numbers, tensors, or a scalar of step code."""
    numbers = {"loss": 0.5, "accuracy": 0.9}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {f"t{n}": torch.tensor(float(n), device=device) for n in range(12)}
    with Monitor(1, progress="none") as monitor:
        scope = monitor.follow(0, steps=1_000_000)
        host = call_us(lambda: scope.step(samples=1, **numbers))
        summed = call_us(lambda: scope.step(samples=1, **tensors))
    with ScalarScope().active():
        scalar = call_us(lambda: record_scalar("x", 1.0))
    return [
        Figure(name="step, 2 numbers", value=host, unit="us", bar=3.0),
        Figure(name=f"step, 12 tensors, {device}", value=summed, unit="us", bar=15.0),
        Figure(name="record_scalar, a number", value=scalar, unit="us", bar=3.0),
    ]


def log_ms() -> float:
    """Return what ``Monitor.log`` takes, the median of 200 epochs, in milliseconds."""
    with Monitor(200, progress="none") as monitor:
        monitor.serve(0)
        taken = []
        for epoch in range(200):
            started = time.perf_counter()
            monitor.log(epoch, 1.0, {"loss": 0.5, "accuracy": 0.9})
            taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


def poller_percent() -> float:
    """Return the share of a core that readings of the host and eight GPUs take, in percent."""
    allocated = dict.fromkeys(range(_DEVICES), 1 << 30)
    sampler = ResourceSampler(range(_DEVICES), probe=EightCards(), allocated=lambda: allocated)
    reader = sampler.reader()
    sampler.poll()
    started = time.thread_time()
    for _ in range(200):
        sampler.poll()
    per_poll = (time.thread_time() - started) / 200
    reader.read()
    return 100 * per_poll / (sampler.poll_ms / 1000)


def lines_per_second(lines: int = 60_000) -> float:
    """Return how many lines a record log takes a second, until the last is safe on the disk."""
    tree = RecordTree()
    made = [
        record
        for tick in range(lines // 300)
        for record in tree.publish(
            [
                NodeReport(
                    path=f"root/h{rank // 8}/r{rank}", metrics={"loss": 1.0}, work=1, tick=tick
                )
                for rank in range(262)
            ]
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        log = RecordLog(Path(folder) / "log")
        started = time.perf_counter()
        for start in range(0, len(made), 5000):
            log.offer(made[start : start + 5000])
            # what waits beyond 10,000 would be lost
            while log.waiting > 5000:
                time.sleep(0.001)
        log.close()
        taken = time.perf_counter() - started
    assert log.dropped == 0
    return len(made) / taken


def streaming(rate: int, clients: int, seconds: float = SECONDS) -> tuple[float, float, float]:
    """Publish so many records a second to so many clients.

    Returns:
        The rate that was reached, the share of frames that arrived, and the share of a core that
        the server's thread took.
    """
    board = RunBoard()
    server = serve_board(board)
    command = [sys.executable, "-c", _READERS, str(server.port), str(clients)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as readers:
        assert readers.stdin is not None
        assert readers.stdout is not None
        readers.stdout.readline()
        thread = next(t for t in threading.enumerate() if t.name == "flodl-portal")
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        before, started = time.clock_gettime(clock), time.perf_counter()
        published = 0
        while (elapsed := time.perf_counter() - started) < seconds:
            due = int(elapsed * rate) - published
            for _ in range(due):
                published += 1
                report = NodeReport(
                    path="root", metrics={"loss": 1.0}, work=1, tick=published, epoch=0
                )
                board.tree.publish([report])
            time.sleep(0.005)
        taken = time.perf_counter() - started
        time.sleep(1.0)
        share = (time.clock_gettime(clock) - before) / taken
        readers.stdin.close()
        arrived = int(readers.stdout.readline()) / (published * clients)
    server.stop()
    return published / taken, arrived, share


def stream_figures() -> list[Figure]:
    """Return how many records a second reach one client, and fifty."""
    figures = []
    for rate, clients in ((5000, 1), (200, 50)):
        reached, arrived, share = streaming(rate, clients)
        name = f"{rate}/s to {clients}"
        figures += [
            Figure(name=f"{name}: rate", value=reached, unit="/s", bar=rate * 0.98, is_least=True),
            Figure(name=f"{name}: arrived", value=arrived, unit="", bar=1.0, is_least=True),
            Figure(name=f"{name}: server", value=share, unit="cores", bar=0.6),
        ]
    return figures


def run() -> list[Figure]:
    """Measure everything."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            *step_figures(),
            Figure(name="Monitor.log", value=log_ms(), unit="ms", bar=2.0),
            Figure(name="poller, 8 GPUs", value=poller_percent(), unit="% of a core", bar=1.0),
            Figure(
                name="record log",
                value=lines_per_second(),
                unit="lines/s",
                bar=20_000,
                is_least=True,
            ),
            *stream_figures(),
        ]
    finally:
        torch.set_num_threads(threads)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and with ``--gate`` fail where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="ddp_bench.overhead.dashboard_rates")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--gate", action="store_true", help="exit 1 where a bar is missed")
    options = parser.parse_args(arguments)
    return answer(run(), as_json=options.json, is_gate=options.gate)


if __name__ == "__main__":
    sys.exit(main())
