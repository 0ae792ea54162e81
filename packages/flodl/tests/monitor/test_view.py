import io
import json
import subprocess
import sys

import httpx
import pytest

from flodl.monitor import Monitor
from flodl.monitor.__main__ import logged_board, main


@pytest.fixture
def log(tmp_path):
    with Monitor(2, stream=io.StringIO(), name="net") as monitor:
        monitor.record_log(tmp_path / "records")
        for epoch in range(2):
            monitor.log(epoch, 1.0, {"loss": 1.0 / (epoch + 1)})
    return tmp_path / "records"


def test_a_logged_run_has_its_records_and_epochs_back(log):
    board = logged_board(log)
    assert board.tree.current("root")["metrics"] == {"loss": 0.5}
    assert [json.loads(epoch)["epoch"] for epoch in board.epochs()] == [1, 2]
    assert board.api_meta()["label"] == "net"
    assert board.status == "done"


def test_viewing_serves_the_page_of_a_logged_run(log):
    command = [sys.executable, "-m", "flodl.monitor", "view", str(log), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            assert httpx.get(f"{url}node").json()["node"]["metrics"] == {"loss": 0.5}
        finally:
            process.kill()


def test_viewing_nothing_says_so(tmp_path, capsys):
    assert main(["view", str(tmp_path)]) == 1
    assert "no record log" in capsys.readouterr().err
