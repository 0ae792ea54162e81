"""A real run over two ranks, as its viewers, its files and its launcher see it."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.multiproc]

PROGRAM = Path(__file__).parent / "programs" / "watched.py"
LIMIT_S = 150


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Viewer:
    """Follows the root by server-sent events from the first moment on until the run is over."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(
            base_url=self.url,
            timeout=60,
            trust_env=False,
            headers={"Authorization": "Bearer for-viewers"},
        )
        self.records, self.end, self.codes = [], None, {}

    def wait_for_door(self):
        give_up = time.monotonic() + 60
        while True:
            try:
                return self.client.get("/healthz")
            except httpx.TransportError:
                assert time.monotonic() < give_up
                time.sleep(0.05)

    def try_doors(self):
        """Ask with the viewers' token, and without any."""
        for verb, path in (("GET", "/paths"), ("POST", "/stop")):
            bare = httpx.request(verb, self.url + path, trust_env=False).status_code
            self.codes[path] = (self.client.request(verb, path).status_code, bare)

    def follow(self):
        with self.client.stream("GET", "/stream?path=root&alerts=root") as answer:
            event = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: ") and event == "record":
                    self.records.append(json.loads(line.removeprefix("data: ")))
                elif line.startswith("data: ") and event == "complete":
                    self.end = json.loads(line.removeprefix("data: "))
                    return


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder, viewer, what the script printed, and its snapshot at the end."""
    folder, port = tmp_path_factory.mktemp("watched"), free_port()
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=folder,
        start_new_session=True,
    )
    viewer = Viewer(port)
    try:
        viewer.wait_for_door()
        viewer.try_doors()
        viewer.follow()
        snapshot = viewer.client.get("/snapshot").json()
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        viewer.client.close()
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    assert f"  dashboard: http://localhost:{port}/#token=for-viewers\n" in err
    return folder, viewer, json.loads(out.splitlines()[-1]), snapshot


def nodes(run, path):
    return [r for r in run[1].records if r["kind"] == "node" and r["path"] == path]


def test_the_host_s_load_and_memory_reach_the_root_and_no_rank(run):
    seen = [r["res"] for r in nodes(run, "root") if "res" in r]
    assert seen
    for res in seen:
        assert 0 <= res["cpu"] <= 100
        assert 0 < res["ram_used"] < res["ram_total"]
        assert res["cpus"] >= 1
    assert not any("res" in r for n in (0, 1) for r in nodes(run, f"root/rank{n}"))


def test_the_token_of_viewers_opens_what_is_read_and_controls_nothing(run):
    assert run[1].codes == {"/paths": (200, 401), "/stop": (401, 401)}


def test_curves_of_ranks_roll_up_within_epochs_and_at_their_ends(run):
    windows = [r for r in nodes(run, "root") if "tick" in r]
    ends = [r for r in nodes(run, "root") if r.get("epoch_complete") and "work" in r]
    assert [r["epoch"] for r in ends] == list(range(8))
    assert len(windows) > 4
    assert all(r["work"] == 256 for r in ends)
    assert all(r["step"] > 0 for r in ends)
    for end in ends:
        parts = [
            r
            for n in (0, 1)
            for r in nodes(run, f"root/rank{n}")
            if r.get("epoch_complete") and r["epoch"] == end["epoch"]
        ]
        work = sum(part["work"] for part in parts)
        mean = sum(part["work"] * part["metrics"]["top1"] for part in parts) / work
        assert end["metrics"]["top1"] == pytest.approx(mean, rel=1e-9)
    metrics = windows[-1]["metrics"]
    assert {"loss", "throughput", "anchor", "cpu_avg_ms", "compute_only_ms"} <= metrics.keys()
    # a step sleeps ten milliseconds, whatever the window's length
    assert 10 <= metrics["compute_only_ms"] < 1000


def test_results_of_evaluations_are_shown(run):
    told = [r for r in nodes(run, "root") if "accuracy" in r.get("metrics", {})]
    assert {r["epoch"] for r in told} == set(range(8))
    assert told[-1]["metrics"]["accuracy"] > 0.6


def test_the_model_and_the_settings_are_shown_without_a_word_of_the_user(run):
    meta = run[3]["meta"]["run"]
    assert meta["label"] == "small"
    facts = run[3]["api_meta"]
    assert facts["metadata"]["parameters"]["total"] == 114
    assert (facts["metadata"]["ranks"], facts["metadata"]["mode"]) == (2, "cpu_cadence")
    assert "<svg" in run[3]["graph_svg"]
    assert "threads" in facts["hardware"]


def test_the_cost_of_the_graph_s_nodes_is_shown_once_for_the_kind_of_device(run):
    (heatmap,) = run[3]["heatmaps"]
    assert heatmap["model"]
    assert "<svg" in heatmap["svg"]
    assert heatmap["svg"] != run[3]["graph_svg"]


def test_each_rank_says_how_its_steps_run(run):
    for number in (0, 1):
        path = f"root/rank{number}"
        lines = [r for r in run[1].records if r["kind"] == "log" and r["path"] == path]
        told = [line["text"] for line in lines if line["text"].startswith("steps on")]
        assert told
        assert all("eager, no_gpu" in text for text in told)
    assert not [r for r in run[1].records if r.get("class") == "capture"]


def test_a_monitor_that_the_handle_has_set_up_shows_model_and_settings(run):
    shown = run[2]["elsewhere"]
    assert (shown["label"], shown["graph"]) == ("small", True)
    assert shown["metadata"]["parameters"]["total"] == 114
    assert (shown["metadata"]["ranks"], shown["metadata"]["batch_size"]) == (2, 8)
    assert "<svg" in run[2]["picture"]


def test_the_launcher_s_timeline_holds_the_run(run):
    found = run[2]
    assert {"epoch_start", "epoch_end", "cpu_avg_start", "cpu_avg_end", "div", "eval"} <= set(
        found["kinds"]
    )
    assert found["ends"] == list(range(8))
    assert found["samples"] > 10
    assert found["rank_hosts"] == [found["host"]]


def test_the_files_hold_every_level(run):
    folder = run[0]
    assert run[1].end["status"] == "done"
    names = {file.relative_to(folder / "log").as_posix() for file in folder.glob("log/**/*.jsonl")}
    assert names == {"root.jsonl", "root/rank0.jsonl", "root/rank1.jsonl"}
    page = (folder / "page.html").read_text()
    assert re.search(r'id="flodl-data"', page)
    (spill,) = folder.glob("spill/*/timeline.jsonl")
    assert spill.stat().st_size > 0
