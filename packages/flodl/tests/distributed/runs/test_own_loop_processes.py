"""Scripts with a loop of their own, as users start them: with ranks, and under torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flodl.engine.bundle import find_bundle

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "own_loop.py"
LIMIT_S = 150
TORCHRUN = (
    "-m",
    "torch.distributed.run",
    "--nproc-per-node=2",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=127.0.0.1:0",
)


def start(what, folder, ranks=2, before=()):
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ.pop("PYTEST_CURRENT_TEST", None)
    return subprocess.Popen(
        [sys.executable, *before, str(PROGRAM), what, str(folder), str(ranks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        start_new_session=True,
    )


def finish(process):
    """The exit status and what was said, once nothing of the run is left."""
    family = descendants(process.pid)
    try:
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        family |= descendants(process.pid)
        process.kill()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, alive
    return process.returncode, err


def descendants(pid):
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def found_in(folder):
    return json.loads((folder / "found.json").read_text())


def names(folder, start):
    return sorted(file.name for file in folder.glob(f"{start}*"))


def test_a_script_trains_by_its_own_loop_on_two_ranks(tmp_path):
    code, err = finish(start("train", tmp_path))
    assert code == 0, err
    found = found_in(tmp_path)
    assert found["epochs"] == [0, 1, 2]
    assert found["accounts"] == [[512, 512]] * 3
    assert (found["finished"], found["steps"]) == (3, 96)
    assert found["loss"][-1] < 0.5 * found["loss"][0]
    assert found["accuracy"][-1] > 0.8
    assert find_bundle(tmp_path / "model").meta["global_step"] == 96
    assert names(tmp_path, "inside") == ["inside-0", "inside-1"]
    assert not names(tmp_path, "after")  # neither ranks nor the launcher come there


def test_the_same_script_trains_under_torchrun_and_goes_on(tmp_path):
    code, err = finish(start("train", tmp_path, ranks=0, before=TORCHRUN))
    assert code == 0, err
    found = found_in(tmp_path)
    assert (found["epochs"], found["finished"], found["steps"]) == ([0, 1, 2], 3, 96)
    assert found["loss"][-1] < 0.5 * found["loss"][0]
    assert names(tmp_path, "after") == ["after-0", "after-1"]


def test_an_exception_in_the_loop_ends_the_program_with_its_file_and_line(tmp_path):
    code, err = finish(start("raise", tmp_path))  # there is no function for the launcher
    assert code == 1
    line = 1 + PROGRAM.read_text().splitlines().index(
        '                raise KeyError("what the user did")'
    )
    assert f'{PROGRAM}", line {line}' in err
    assert "RankError" in err
    assert "KeyError: 'what the user did'" in err


def test_a_killed_rank_comes_back_into_its_loop_and_no_sample_is_lost(tmp_path):
    code, err = finish(start("die", tmp_path))
    assert code == 0, err
    found = found_in(tmp_path)
    assert found["accounts"] == [[512, 512]] * 3
    assert len(found["deaths"]) == 1


def test_leaving_the_loop_ends_the_run_in_good_order(tmp_path):
    code, err = finish(start("stop", tmp_path))
    assert code == 0, err
    assert 1 <= found_in(tmp_path)["finished"] < 100
    assert find_bundle(tmp_path / "model").meta["save_reason"] == "stop_training"


def signalled(process, folder):
    """What came of a run that got SIGTERM once its loop had begun."""
    give_up = time.monotonic() + 60
    while not (folder / "begun").exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, err = finish(process)
    return code, err, find_bundle(folder / "model").meta["save_reason"]


def test_a_signal_ends_the_run_in_good_order(tmp_path):
    code, err, reason = signalled(start("long", tmp_path), tmp_path)
    assert (code, reason) == (128 + signal.SIGTERM, "interrupted"), err


def test_a_signal_under_torchrun_ends_the_run_in_good_order(tmp_path):
    process = start("long", tmp_path, ranks=0, before=TORCHRUN)
    _, err, reason = signalled(process, tmp_path)
    assert reason == "interrupted", err
    assert "RunInterrupted: interrupted after " in err
