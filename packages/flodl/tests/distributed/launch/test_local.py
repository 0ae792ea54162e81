"""A run of real processes from its launcher: how it begins, what it survives, what it leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flodl.core.errors import LaunchError
from flodl.distributed.launch.attach import AttachedRun
from flodl.distributed.launch.run_folder import RunFolder, RunRecord

PROGRAM = Path(__file__).parent.parent / "programs" / "three_roles.py"
LIMIT_S = 150

pytestmark = [pytest.mark.multiproc, pytest.mark.slow]


class Launched:
    """The program in a process group of its own, with all processes that belong to it."""

    def __init__(self, folder, mode="", **environ):
        self.folder = folder
        self.mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
        values = {"DOUBLE_RUN_DIR": str(folder), "DOUBLE_MODE": mode, "DOUBLE_MARK": self.mark}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), self.mark],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **values, **environ},
            start_new_session=True,
        )

    def end(self):
        """Wait for the launcher's end; returns what it said last, all it printed, its errors."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        lines = out.splitlines()
        told = next((json.loads(x) for x in reversed(lines) if x.startswith("{")), None)
        self.run = next(line.split()[-1] for line in lines if line.startswith("run "))
        return told, out, err

    def processes(self):
        """Return the command lines of all processes of the run, by id."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environ = (folder / "environ").read_bytes()
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.mark.encode() in environ and words[0]:
                found[int(folder.name)] = [word.decode() for word in words]
        return found

    def logged(self, name):
        file = self.folder / "logs" / name
        return file.read_text() if file.exists() else ""

    def wait_for(self, name, text):
        """Wait until a log holds a text."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.logged(name):
            assert time.monotonic() < deadline, f"{name} never said {text!r}"
            assert self.process.poll() is None, self.end()
            time.sleep(0.01)

    def record(self):
        return json.loads((self.folder / "run.json").read_text())

    def assert_nothing_is_left(self):
        deadline = time.monotonic() + 10
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not self.processes()
        assert not list(Path("/dev/shm").glob(f"flodl-{self.run}*"))


@pytest.fixture
def launch(tmp_path):
    made = []

    def start(mode="", **environ):
        made.append(Launched(tmp_path, mode, **environ))
        return made[-1]

    yield start
    for launched in made:
        for pid in launched.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        launched.process.communicate()


@pytest.mark.parametrize("zygote", ["1", "0"])
def test_two_ranks_meet_and_part(launch, zygote):
    run = launch(FLODL_ZYGOTE=zygote)
    told, out, err = run.end()
    assert run.process.returncode == 0, err
    assert told["finish"]["reason"] == "done"
    assert sorted(told["finish"]["report"]["exits"]) == [[0, None, 5], [0, None, 6]]
    assert (
        sorted(
            run.logged("rank0.log").splitlines()[-1:] + run.logged("rank1.log").splitlines()[-1:]
        )[-1]
        == "sum 3"
    )
    assert "/rank1] rank 1 of run 0 is here" in out
    run.assert_nothing_is_left()


def test_objects_are_pickled_where_the_program_cannot_run_again(launch):
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    run = launch("spawn", PYTHONPATH=path)
    told, out, err = run.end()
    assert told["finish"]["reason"] == "done", err
    assert "/rank0] hello rank" in out
    assert "hello controller" in run.logged("controller.log")
    assert not (run.folder / "payload.pkl").exists()
    run.assert_nothing_is_left()


def test_a_run_leaves_nothing_open_in_its_launcher(launch):
    run = launch("twice")
    _, out, err = run.end()
    left = [line for line in out.splitlines() if line.startswith("open: ")]
    assert len(left) == 2, err
    assert left[0] == left[1]
    assert left[0].endswith(" 1 threads")


def test_the_token_is_in_no_command_line_and_no_log(launch):
    run = launch("go_on")
    run.wait_for("rank0.log", "sum")
    token = run.record()["token"]
    lines = [" ".join(words) for words in run.processes().values()]
    assert len(lines) >= 5
    assert not any(token in line for line in lines)
    ranks = [pid for pid, words in run.processes().items() if "zygote" in " ".join(words)]
    assert ranks
    for pid in ranks:
        assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    run.process.send_signal(signal.SIGTERM)
    _, out, err = run.end()
    logs = [file.read_text() for file in (run.folder / "logs").iterdir()]
    assert len(logs) == 3
    assert not any(token in text for text in (out, err, *logs))
    assert not (run.folder / "run.json").exists()


def test_a_controller_that_is_killed_is_started_again_and_the_ranks_live_on(launch):
    run = launch("go_on")
    run.wait_for("rank0.log", "sum")
    before = set(run.processes())
    os.kill(run.record()["controller_pid"], signal.SIGKILL)
    run.wait_for("rank0.log", "again 2")
    run.wait_for("rank1.log", "again 2")
    os.kill(run.process.pid, signal.SIGINT)
    told, _, err = run.end()
    assert told["finish"]["report"]["gen"] == 2
    assert [code for code, _, _ in told["finish"]["report"]["exits"]] == [0, 0]
    assert "it is started again" in err
    assert len(before) >= 5
    run.assert_nothing_is_left()


def test_a_controller_that_always_dies_is_given_up(launch):
    run = launch("die")
    told, _, _ = run.end()
    assert told["finish"] is None
    assert told["reason"] == "controller_lost: it ended 4 times, at last with status 9"
    run.assert_nothing_is_left()


def test_a_program_that_ends_before_the_run_says_where(launch):
    run = launch("broken")
    told, _, _ = run.end()
    assert "the controller ended with status 1 before the run began" in told["reason"]
    assert "NameError: name 'undefined' is not defined" in told["tail"]
    run.assert_nothing_is_left()


def test_a_rank_that_raises_ends_with_its_traceback_in_log_and_report(launch):
    run = launch("raise")
    told, _, err = run.end()
    assert [code for code, _, _ in told["finish"]["report"]["exits"]] == [1, 1]
    tail = told["finish"]["report"]["tails"][0]
    assert "RuntimeError: user code failed" in tail
    assert 'three_roles.py", line' in tail
    assert "RuntimeError: user code failed" in err
    run.assert_nothing_is_left()


def test_a_rank_that_is_killed_is_seen_at_once(launch):
    run = launch("go_on")
    run.wait_for("rank0.log", "sum")
    run.wait_for("rank1.log", "sum")
    rank = int(run.logged("rank1.log").split("pid ")[1].split()[0])
    started = time.monotonic()
    os.kill(rank, signal.SIGKILL)
    run.wait_for("controller.log", "exit of")
    assert time.monotonic() - started < 5.0
    os.kill(run.process.pid, signal.SIGTERM)
    told, _, _ = run.end()
    assert sorted(told["finish"]["report"]["exits"], key=str) == [[0, None, 5], [None, 9, 6]]
    run.assert_nothing_is_left()


def test_ctrl_c_once_is_an_end_in_good_order(launch):
    run = launch("go_on")
    run.wait_for("rank1.log", "sum")
    os.kill(run.process.pid, signal.SIGINT)
    told, _, err = run.end()
    assert told["finish"]["reason"] == "done"
    assert told["code"] == 130
    assert "press Ctrl-C again" in err
    run.assert_nothing_is_left()


def test_ctrl_c_twice_ends_everything_within_seconds(launch):
    run = launch("stubborn")
    run.wait_for("rank1.log", "sum")
    os.kill(run.process.pid, signal.SIGINT)
    time.sleep(0.2)
    assert run.process.poll() is None
    started = time.monotonic()
    os.kill(run.process.pid, signal.SIGINT)
    run.end()
    assert time.monotonic() - started < 10
    assert run.process.returncode != 0
    run.assert_nothing_is_left()


def test_a_launcher_that_is_killed_leaves_the_run_alive_and_told(launch):
    run = launch("go_on")
    run.wait_for("rank1.log", "sum")
    run.process.kill()
    run.process.wait()
    deadline = time.monotonic() + 30
    while "launcher lost" not in run.logged("controller.log") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "launcher lost" in run.logged("controller.log")
    assert len(run.processes()) >= 4
    again = launch("attach")
    told, _, err = again.end()
    assert told["finish"]["reason"] == "done", err
    assert told["finish"]["report"]["gen"] == 1
    again.assert_nothing_is_left()
    assert not run.processes()


def test_a_run_that_is_gone_cannot_be_attached_to(tmp_path):
    with pytest.raises(LaunchError, match="there is no folder"):
        AttachedRun(str(tmp_path / "nothing"), lambda note: None)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(LaunchError, match="cannot be attached to"):
        AttachedRun(str(folder.path), lambda note: None)
    folder.write_record(
        RunRecord(
            run="r", nonce="n", address="x:1", token="t", ordinal=0, controller_pid=1, host_pid=1
        )
    )
    with pytest.raises(LaunchError, match="process 1, is gone"):
        AttachedRun(str(folder.path), lambda note: None)


def test_a_daemon_that_is_killed_takes_its_ranks_along(launch):
    run = launch("go_on")
    run.wait_for("rank1.log", "sum")
    pids = [int(run.logged(f"rank{n}.log").split("pid ")[1].split()[0]) for n in range(2)]
    os.kill(run.record()["host_pid"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while set(pids) & set(run.processes()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(pids) & set(run.processes())
    os.kill(run.process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.kill(run.process.pid, signal.SIGINT)
    run.end()
    run.assert_nothing_is_left()
