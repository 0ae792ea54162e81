"""A script with a loop of its own gives the same under torchrun as with replicas in one process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "loop.py"
LIMIT_S = 240


def results(folder, command, **environ):
    folder.mkdir()
    ran = subprocess.run(
        [*command, str(PROGRAM), str(folder)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environ},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())], ran.stderr


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
@pytest.mark.multiproc
def test_two_processes_train_like_two_replicas_and_like_one_device(tmp_path):
    torchrun = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", str(free_port())),
    ]
    (one,), said = results(tmp_path / "one", [sys.executable])
    assert "ddp: no CUDA available | CPU mode" in said
    (replicas,), said = results(tmp_path / "two", [sys.executable], FLODL_FAKE_DEVICES="2")
    assert "ddp: replicas on the CPU: 2" in said
    ranks, _ = results(tmp_path / "run", torchrun)
    assert [(run["world"], run["here"]) for run in [one, replicas, *ranks]] == [
        *((1, 0), (2, 2), (2, 1), (2, 1)),
    ]
    together = [sum(step) for step in zip(*(rank["losses"] for rank in ranks), strict=True)]
    assert replicas["losses"] == pytest.approx(one["losses"], rel=1e-5, abs=1e-6)
    assert together == pytest.approx(replicas["losses"], rel=1e-5, abs=1e-6)
    assert ranks[0]["parameters"] == ranks[1]["parameters"]
