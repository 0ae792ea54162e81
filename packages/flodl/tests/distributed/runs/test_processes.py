"""Runs as a user starts them: a script, its ranks as processes, and what reaches the caller."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flodl.checkpoint import checkpoint_info
from flodl.engine.bundle import find_bundle

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "train.py"
LIMIT_S = 150


def start(what, folder, program=PROGRAM, **variables):
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | variables
    environ.pop("PYTEST_CURRENT_TEST", None)
    return subprocess.Popen(
        [sys.executable, str(program), what, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=folder,
        start_new_session=True,
    )


def finish(process):
    """What the script printed last, once nothing of its run is left."""
    family = descendants(process.pid)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        family |= descendants(process.pid)
        process.kill()
    assert process.returncode == 0, err
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, alive
    return json.loads(out.splitlines()[-1]), err


def descendants(pid):
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def wait_for_first_epoch(folder):
    give_up = time.monotonic() + 60
    while not (folder / "trained").exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    assert (folder / "trained").exists()


def test_a_script_trains_on_two_ranks_and_saves(tmp_path):
    found, err = finish(start("train", tmp_path))
    assert found["epochs"] == [0, 1, 2]
    assert found["finished"] == 3
    assert found["accounts"] == [[512, 512]] * 3
    assert found["loss"][-1] < 0.5 * found["loss"][0]
    assert found["deaths"] == []
    assert "ddp: " in err
    bundle = find_bundle(tmp_path / "model")
    assert bundle.meta["global_step"] == found["steps"] == 96
    info = checkpoint_info(tmp_path / "model.fdl")
    assert sorted(info.tensors) == found["names"]


def test_an_exception_of_the_user_reaches_the_caller_with_its_line(tmp_path):
    found, _ = finish(start("raise", tmp_path))
    assert found["raised"] == "RankError"
    assert "train.py" in found["text"]
    assert 'raise KeyError("what the user did")' in found["text"]
    assert found["cause"] == "KeyError('what the user did')"


def test_a_killed_rank_comes_back_and_no_sample_is_lost(tmp_path):
    found, _ = finish(start("die", tmp_path))
    assert found["accounts"] == [[512, 512]] * 3
    assert len(found["deaths"]) == 1
    (death,) = tmp_path.glob("model.rank*.death.json")
    assert json.loads(death.read_text())["cause"] == "signal 9"


def test_a_second_run_of_a_script_starts_where_the_first_is_over(tmp_path):
    found, _ = finish(start("twice", tmp_path))
    assert found["epochs"] == [0, 1, 2]
    assert found["accounts"] == [[512, 512]] * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_good_order(tmp_path, number):
    process = start("train", tmp_path)
    wait_for_first_epoch(tmp_path)
    process.send_signal(number)
    found, _ = finish(process)
    assert found["raised"] == "RunInterrupted"
    assert found["finished"] < 3
    assert find_bundle(tmp_path / "model").meta["save_reason"] == "interrupted"


def test_a_run_whose_launcher_was_killed_is_taken_up_by_the_same_command(tmp_path):
    first = start("long", tmp_path)
    name = next(filter(None, (re.match(r"ddp: run (\S+)$", line) for line in first.stderr)))[1]
    wait_for_first_epoch(tmp_path)
    family = descendants(first.pid)
    first.kill()
    first.wait()
    found, _ = finish(start("long", tmp_path, FLODL_ATTACH=name))
    assert found["finished"] == 100
    assert found["accounts"] == [[512, 512]] * 100
    assert found["epochs"][-1] == 99
    assert (tmp_path / "model.fdl").is_file()
    first.communicate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, alive


def test_taking_up_a_run_that_is_not_there_is_told(tmp_path):
    refused = start("train", tmp_path, FLODL_ATTACH="260101-000000-abcdef")
    _, err = refused.communicate(timeout=LIMIT_S)
    assert refused.returncode == 1
    assert "run '260101-000000-abcdef': there is no folder" in err
