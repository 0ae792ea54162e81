"""Two real ranks that average by Gloo, their telemetry in one tree, watched while they train."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from flodl.core.paths import RecordTier
from flodl.monitor.place import serve_place
from flodl.monitor.plane import RunPlane
from flodl.monitor.saved_page import SavedPage
from flodl.records.board import RunBoard
from flodl.records.feed import RankFeed

pytestmark = [pytest.mark.slow, pytest.mark.multiproc]

EPOCHS, WINDOWS = 2, 4
PROGRAM = Path(__file__).with_name("rank_program.py")


class Viewer(threading.Thread):
    """A plain reader of server-sent events, which keeps every record until the run is over."""

    def __init__(self, url):
        super().__init__()
        self.records, self.url, self.is_open = [], url, threading.Event()

    def run(self):
        with httpx.stream("GET", self.url, timeout=60, trust_env=False) as answer:
            event = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                    self.is_open.set()
                elif line.startswith("data: ") and event == "record":
                    self.records.append(json.loads(line.removeprefix("data: ")))
                elif event == "complete":
                    return


def start_rank(rank, folder):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(rank), str(folder / "store"), str(EPOCHS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def direct(feed, ranks):
    """What a controller does: windows as all ranks have finished them, then the epoch."""
    step = 0
    for epoch in range(EPOCHS):
        feed.begin_epoch(epoch, work=WINDOWS * 24)
        for _ in range(WINDOWS):
            step += 1
            bodies = [json.loads(rank.stdout.readline()) for rank in ranks]
            feed.window(bodies, step=step, engine={"anchor": 1})
        feed.end_epoch(epoch, duration_secs=1.0, step=step, evals={"accuracy": 0.5})
        for rank in ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()


def test_two_ranks_are_one_tree_live_on_disk_and_in_the_saved_page(tmp_path):
    board = RunBoard()
    board.tree.describe(total_epochs=EPOCHS, label="two ranks")
    plane = RunPlane(board)
    plane.open_log(tmp_path / "log")
    plane.save_page(SavedPage(path=tmp_path / "page.html"))
    portal = plane.serve(serve_place(0))
    # a clock that runs fast, so that no report is held back for coming too soon
    ticks = iter(range(10**6))
    feed = RankFeed(board, RecordTier(["here"] * 2), reports_per_epoch=4, clock=lambda: next(ticks))
    for rank in range(2):
        feed.join(rank, "here")
    viewer = Viewer(f"http://127.0.0.1:{portal.port}/stream?path=root")
    viewer.start()
    assert viewer.is_open.wait(30)
    ranks = [start_rank(rank, tmp_path) for rank in range(2)]
    try:
        direct(feed, ranks)
        assert [rank.wait(60) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()
        plane.finish("done")
        viewer.join(30)
    seen = [record for record in viewer.records if record["kind"] == "node"]
    by_path = {
        path: [r for r in seen if r["path"] == path and "tick" in r]
        for path in ("root", "root/rank0", "root/rank1")
    }
    assert {path: len(rows) for path, rows in by_path.items()} == dict.fromkeys(by_path, 8)
    for root, first, second in zip(*by_path.values(), strict=True):
        assert (first["work"], second["work"], root["work"]) == (8, 16, 24)
        mean = (8 * first["metrics"]["loss"] + 16 * second["metrics"]["loss"]) / 24
        assert root["metrics"]["loss"] == pytest.approx(mean, rel=1e-12)
    assert by_path["root"][-1]["metrics"]["loss"] < by_path["root"][0]["metrics"]["loss"]
    assert by_path["root/rank1"][0]["label"] == "fake card 1"
    assert board.tree.current("root")["res"]["gpu_util"] == 50.5
    lines = (tmp_path / "log" / "root" / "rank1.jsonl").read_text().splitlines()
    assert sum(json.loads(line).get("epoch_complete", False) for line in lines) == EPOCHS
    page = (tmp_path / "page.html").read_text()
    data = re.search(r'id="flodl-data">(.*?)</script>', page, flags=re.S).group(1)
    nodes = json.loads(data)["nodes"]
    assert {"root", "root/rank0", "root/rank1"} <= nodes.keys()
    assert nodes["root"]["node"]["metrics"]["accuracy"] == 0.5
