"""The portal in a process of its own shows what the one in a thread shows."""

import io
import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from flodl.monitor import Monitor
from flodl.web.errors import DashboardBindError


def until(ask, wanted):
    deadline = time.monotonic() + 20
    while (answer := ask()) != wanted:
        assert time.monotonic() < deadline, answer


@pytest.fixture
def monitor():
    made = Monitor(3, stream=io.StringIO(), name="net")
    made.set_metadata({"lr": 0.1})
    made.log(0, 1.0, {"loss": 0.5})
    yield made
    made.finish()


def test_past_and_present_reach_the_other_process(monitor):
    url = monitor.serve(0, isolate=True)

    def epochs():
        return [epoch["epoch"] for epoch in httpx.get(f"{url}/api/history").json()]

    until(epochs, [1])
    monitor.log(1, 1.0, {"loss": 0.25})
    monitor.board.tree.alert("io", "root", "text")
    until(epochs, [1, 2])
    until(lambda: len(httpx.get(f"{url}/api/alerts").json()), 1)
    until(lambda: httpx.get(f"{url}/api/meta").json(), monitor.board.api_meta())
    kept = [record.body() for record in monitor.board.tree.history("root").records]
    assert httpx.get(f"{url}/history").json() == kept
    assert httpx.get(f"{url}/node").json()["node"] == monitor.board.tree.current("root")


def test_it_loads_no_torch(monitor):
    monitor.serve(0, isolate=True)
    pid = monitor.plane.portal._process.pid
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "libtorch" not in maps


def test_the_end_is_told_to_streams_and_frees_the_port(monitor):
    url = monitor.serve(0, isolate=True)
    with httpx.stream("GET", f"{url}/stream") as response:
        lines = response.iter_lines()
        next(lines)
        monitor.finish()
        text = "\n".join(lines)
    assert "event: complete" in text
    assert json.loads(text.rpartition("data: ")[2])["status"] == "done"
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_taken_port_is_told_at_once(monitor):
    port = int(monitor.serve(0).rpartition(":")[2])
    other = Monitor(1, progress="none")
    with pytest.raises(DashboardBindError, match=str(port)):
        other.serve(port, isolate=True)
    other.finish()


def test_its_death_ends_no_training(monitor, caplog):
    monitor.serve(0, isolate=True)
    os.kill(monitor.plane.portal._process.pid, signal.SIGKILL)
    monitor.plane.portal._process.wait()
    for epoch in (1, 2):
        monitor.log(epoch, 1.0, {"loss": 0.25})
        monitor.plane.portal._mirror._wake.set()
    monitor.finish()
    assert len(monitor.history) == 3
    assert "training goes on" in caplog.text
