"""What a reader waits for in a real browser: the newest record, a late look, a saved page.

It drives Debian's chromium through Playwright, which are both needed only here.
"""

import argparse
import importlib
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddp_bench.overhead.dashboard_plane import Figure, answer, leaves
from flodl.records.board import RunBoard
from flodl.testing.fake_run import FakeRun, FakeRunShape, serve_board
from flodl.web.archive import portal_file

RECORDS = 200
RATE = 10.0
EPOCHS = 10_000
UPDATES = 14_400
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_USABLE = """document.querySelector('#metrics-legend li')
  && flodl.draws > 0 && flodl.level.track.length > 0"""

# what was drawn, and when: a moment after the browser has painted it
_WATCH = """() => {
  globalThis.drawn = [];
  let last = flodl.draws;
  const look = () => {
    if (flodl.draws !== last) {
      last = flodl.draws;
      drawn.push([flodl.level.lastSeq, Date.now(), flodl.drawMs]);
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""

# an hour of windows of all nodes that a level shows, at four a second
_HOUR = """async (updates) => {
  const { level } = flodl;
  const kinds = [level.node, ...level.children.values()];
  let seq = level.lastSeq;
  const ts = Date.now();
  for (let tick = 0; tick < updates; tick += 1) {
    for (const rec of kinds)
      flodl.takeRecord(level, { ...rec, epoch_complete: undefined, seq: seq += 1,
        ts: ts + tick * 250, tick, epoch: Math.floor(tick / 20), step: tick,
        metrics: { ...rec.metrics, loss: Math.random() } });
    if (tick % 200 === 0) {
      flodl.redraw();
      await new Promise((done) => setTimeout(done));
    }
  }
}"""


class NoBrowserError(RuntimeError):
    """Playwright or chromium is not installed."""


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a browser without a window.

    Raises:
        NoBrowserError: There is none here.
    """
    chromium = shutil.which("chromium")
    try:
        api = importlib.import_module("playwright.sync_api")
    except ImportError as error:
        raise NoBrowserError(
            "the page is measured with Playwright: pip install playwright"
        ) from error
    if chromium is None:
        raise NoBrowserError(
            "the page is measured in chromium, and there is none: apt install chromium"
        )
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        yield launched
        launched.close()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that so great a share of all is at most."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def delays_ms(
    published: Sequence[tuple[int, float]], drawn: Sequence[Sequence[float]]
) -> list[float]:
    """Return how long each record waited until it was drawn.

    Args:
        published: Number of each record, and when it was published, in milliseconds.
        drawn: Newest number of each drawing, and when it was seen.

    Raises:
        ValueError: A record was never drawn.
    """
    found = []
    for seq, at in published:
        seen = next((moment for newest, moment, *_ in drawn if newest >= seq), None)
        if seen is None:
            raise ValueError(f"record {seq} was never drawn")
        found.append(seen - at)
    return found


def freshness(launched: Any, *, records: int = RECORDS, ranks: int = 8) -> list[Figure]:
    """Return how long a record takes to be seen, and how long a drawing takes."""
    run = FakeRun(FakeRunShape(ranks=ranks, hosts=2, windows=20))
    run.run_epochs(3)
    server = serve_board(run.board)
    page = launched.new_page()
    published = []
    try:
        _open(page, f"http://127.0.0.1:{server.port}/")
        page.evaluate(_WATCH)
        for _ in range(records):
            run.step()
            published.append((_newest(run), time.time() * 1000))
            page.wait_for_timeout(1000 / RATE)
        _until(
            page,
            f"flodl.level.lastSeq >= {published[-1][0]} && drawn.at(-1)[0] >= {published[-1][0]}",
        )
        drawn = page.evaluate("drawn")
    finally:
        page.close()
        server.stop()
    waits = delays_ms(published, drawn)
    return [
        Figure(name="record to browser, p95", value=percentile(waits, 0.95), unit="ms", bar=500),
        Figure(
            name="a drawing, p95", value=percentile([d[2] for d in drawn], 0.95), unit="ms", bar=16
        ),
    ]


def late_join(launched: Any, *, epochs: int = EPOCHS) -> Figure:
    """Return how long a page takes that is opened after so many epochs."""
    run = FakeRun(FakeRunShape(epochs=2 * epochs, windows=1))
    run.run_epochs(epochs)
    server = serve_board(run.board)
    page = launched.new_page()
    try:
        taken = _timed(lambda: _open(page, f"http://127.0.0.1:{server.port}/"))
    finally:
        page.close()
        server.stop()
    return Figure(name=f"late join, {epochs} epochs", value=taken, unit="s", bar=1.0)


def saved_page(launched: Any, *, ticks: int = 300) -> Figure:
    """Return how long a saved page of 340 nodes takes to open."""
    board = RunBoard()
    for tick in range(ticks):
        board.tree.publish(leaves(300, tick, keys=16, hosts=True))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_bytes(portal_file(board))
        page = launched.new_page()
        try:
            taken = _timed(lambda: _open(page, file.as_uri()))
        finally:
            page.close()
    return Figure(name="saved page opened", value=taken, unit="s", bar=3.0)


def an_hour(launched: Any, *, updates: int = UPDATES, ranks: int = 300) -> Figure:
    """Return what a page holds after so many updates of a wide level."""
    run = FakeRun(FakeRunShape(ranks=ranks, windows=2))
    run.run_epochs(1)
    server = serve_board(run.board)
    context = launched.new_context()
    page = context.new_page()
    page.set_default_timeout(0)
    try:
        _open(page, f"http://127.0.0.1:{server.port}/")
        page.evaluate(_HOUR, updates)
        session = context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")["usedSize"]
    finally:
        context.close()
        server.stop()
    return Figure(name=f"heap, {updates} updates", value=used / 1e6, unit="MB", bar=100)


def run(*, updates: int = UPDATES) -> list[Figure]:
    """Measure everything.

    Raises:
        NoBrowserError: There is none here.
    """
    with browser() as launched:
        return [
            *freshness(launched),
            late_join(launched),
            saved_page(launched),
            an_hour(launched, updates=updates),
        ]


def _newest(run: FakeRun) -> int:
    current = run.board.tree.current("root")
    assert current is not None
    return int(current["seq"])


def _open(page: Any, url: str) -> None:
    page.goto(url, wait_until="commit")
    _until(page, _USABLE)


def _until(page: Any, condition: str, seconds: float = 60.0) -> None:
    # not Playwright's own way: it compiles text in the page, which the page's policy forbids
    end = time.monotonic() + seconds
    while not page.evaluate(f"Boolean(globalThis.flodl) && ({condition})"):
        if time.monotonic() > end:
            raise TimeoutError(f"the page never came to this: {condition}")
        time.sleep(0.01)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and with ``--gate`` fail where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, prog="ddp_bench.overhead.dashboard_page")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of the memory figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--gate", action="store_true", help="exit 1 where a bar is missed")
    options = parser.parse_args(arguments)
    try:
        figures = run(updates=options.updates)
    except NoBrowserError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return answer(figures, as_json=options.json, is_gate=options.gate)


if __name__ == "__main__":
    sys.exit(main())
