"""The same program under torchrun and under Slurm's variables, in real processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "programs" / "outside.py"
LIMIT_S = 200

pytestmark = [pytest.mark.multiproc, pytest.mark.slow]


def environ(folder, **values):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TORCHELASTIC"))}
    return {**clean, "DOUBLE_RUN_DIR": str(folder), "OMP_NUM_THREADS": "1", **values}


def assert_both_met(text):
    assert "rank 0 of 2: sum" in text
    assert "rank 1 of 2: sum" in text
    assert "sum 3" in text
    finish = json.loads(next(x for x in text.splitlines() if x.startswith("{")))
    assert finish["reason"] == "done"
    assert sorted(finish["report"]["exits"]) == [[0, None, 5], [0, None, 6]]


def test_torchruns_processes_find_each_other(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=127.0.0.1:0",
            str(PROGRAM),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environ(tmp_path),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_both_met(done.stdout)


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_processes_without_an_agent_find_each_other(tmp_path, launcher):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def variables(rank):
        if launcher == "torchrun":
            return {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
        return {
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "2",
            "SLURM_LOCALID": str(rank),
            "SLURM_JOB_ID": str(port),
            "SLURM_JOB_NODELIST": "localhost",
            "SLURM_TASKS_PER_NODE": "2",
        }

    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(tmp_path, **variables(rank)),
        )
        for rank in range(2)
    ]
    try:
        ends = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], ends
    assert_both_met("".join(out for out, _ in ends))
