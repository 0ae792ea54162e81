import json
import subprocess
import sys

import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.cluster.role import Role, RunPlace, place_of, role_of
from flodl.distributed.launch.child import (
    controller_process,
    earlier_results,
    exit_if_worker_role,
    rank_link,
)
from flodl.distributed.launch.results import ResultShelf

PLACE = RunPlace(run="r", nonce="n", run_dir="/", ordinal=2)


def test_a_process_that_nobody_started_is_a_launcher_and_goes_on():
    assert role_of({}) is Role.LAUNCHER
    exit_if_worker_role()
    for take_role in (controller_process, rank_link, earlier_results):
        with pytest.raises(LaunchError, match="FLODL_INTERNAL_RUN holds no place"):
            take_role()


def test_a_place_comes_back_from_the_environment():
    environ = PLACE.environ(Role.RANK)
    assert role_of(environ) is Role.RANK
    assert place_of(environ) == PLACE


@pytest.mark.parametrize("text", ["", "x", "[]", '{"run": 1}', '{"unknown": 1}'])
def test_a_place_that_cannot_be_read_is_an_error(text):
    with pytest.raises(LaunchError, match="holds no place"):
        place_of({"FLODL_INTERNAL_RUN": text})


def test_a_controller_without_token_or_port_was_not_started_as_one(monkeypatch):
    for name, value in PLACE.environ(Role.CONTROLLER).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match="not started as a controller"):
        controller_process()


def test_a_later_process_finds_what_earlier_runs_gave(monkeypatch, tmp_path):
    shelf = ResultShelf(tmp_path)
    shelf.put(0, "first")
    place = RunPlace(run="r", nonce="n", run_dir="/", ordinal=1, results=str(tmp_path))
    for name, value in place.environ(Role.RANK).items():
        monkeypatch.setenv(name, value)
    assert earlier_results().get(0) == "first"


def ended(tmp_path, role, **fields):
    """Return how a program that gates before run() goes on in a role."""
    (tmp_path / "taker.py").write_text("def take(file):\n    print('took', file)\n")
    place = RunPlace(run="r", nonce="n", run_dir="/", entry="taker:take", **fields)
    code = (
        "from flodl.distributed.launch.child import exit_if_worker_role\n"
        "exit_if_worker_role()\n"
        "print('went on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin", "PYTHONPATH": str(tmp_path), **place.environ(role)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("role", "payload", "said"),
    [
        (Role.CONTROLLER, "/x", "took /x\n"),
        (Role.CONTROLLER, None, "went on\n"),
        (Role.RANK, "/x", "went on\n"),
        (Role.LAUNCHER, None, "went on\n"),
    ],
)
def test_a_program_that_gates_ends_early_only_where_it_is_not_needed(tmp_path, role, payload, said):
    assert ended(tmp_path, role, payload=payload) == said


def test_these_modules_load_no_torch():
    code = (
        "import sys, json\n"
        "import flodl.distributed.launch.decision, flodl.distributed.launch.method\n"
        "import flodl.distributed.launch.hardware, flodl.distributed.launch.cuda_guard\n"
        "print(json.dumps(sorted({'torch', 'websockets', 'fastapi'} & set(sys.modules))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == []


def test_a_rank_loads_no_web_server():
    code = (
        "import sys, flodl.trainer.ranks.rank\n"
        "sys.exit(bool({'fastapi', 'uvicorn'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
