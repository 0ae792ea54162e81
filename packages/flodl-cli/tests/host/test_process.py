import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from flodl_cli.errors import LaunchError
from flodl_cli.host.process import ask, run_child

# A child that names itself once it is ready, and says which signal it got.
CHILD = """
import os, signal, sys, time
def say(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit({code})
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, say)
print("ready", os.getpgrp() == os.getpid(), flush=True)
while True:
    signal.pause()
"""


def fdl_around(code, folder, **options):
    """fdl as a process, running a Python program as its child."""
    (folder / "fdl.yml").write_text("commands: {t: {path: t}}\n")
    (folder / "t").mkdir()
    (folder / "t/fdl.yml").write_text(f"entry: {sys.executable} child.py\n")
    (folder / "t/child.py").write_text(code)
    return subprocess.Popen(
        [sys.executable, "-m", "flodl_cli", "t"], cwd=folder, text=True, **options
    )


def test_code_of_the_child_is_returned(tmp_path):
    for code in (0, 3, 200):
        argv = [sys.executable, "-c", f"raise SystemExit({code})"]
        assert run_child(argv, directory=str(tmp_path), env={}) == code


def test_death_by_a_signal_is_128_and_its_number(tmp_path):
    argv = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert run_child(argv, directory=str(tmp_path), env={}) == 137


def test_directory_and_environment_are_those_given(tmp_path, capfd):
    argv = [sys.executable, "-c", "import os; print(os.getcwd(), os.environ['X'])"]
    run_child(argv, directory=str(tmp_path), env={"X": "y"})
    assert capfd.readouterr().out == f"{tmp_path} y\n"


def test_program_that_cannot_start_is_a_launch_error(tmp_path):
    with pytest.raises(LaunchError) as absent:
        run_child(["no-such-program"], directory=str(tmp_path), env={})
    assert absent.value.exit_code == 127
    plain = tmp_path / "plain"
    plain.write_text("text")
    with pytest.raises(LaunchError) as refused:
        run_child([str(plain)], directory=str(tmp_path), env={})
    assert refused.value.exit_code == 126


def test_handlers_are_put_back(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_child([sys.executable, "-c", ""], directory=str(tmp_path), env={})
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(
    ("number", "child_code", "expected"),
    [
        (signal.SIGINT, 2, 130),
        (signal.SIGINT, 0, 0),
        (signal.SIGTERM, 143, 143),
        (signal.SIGHUP, 5, 5),
    ],
)
def test_signal_reaches_the_child_group(tmp_path, number, child_code, expected):
    process = fdl_around(
        CHILD.format(code=child_code),
        tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready True\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert out == f"got {number.name}\n"
    assert process.returncode == expected
    assert err == ""


def test_child_without_a_handler_dies_of_ctrl_c_and_fdl_ends_with_130(tmp_path):
    code = "import signal as s\ns.signal(2, s.SIG_DFL)\nprint('ready', flush=True)\ns.pause()"
    process = fdl_around(
        code, tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")


def read_until(terminal, text):
    seen = b""
    deadline = time.monotonic() + 30
    while text not in seen:
        assert time.monotonic() < deadline, seen
        try:
            seen += os.read(terminal, 1024)
        except OSError:  # the other end has closed
            break
    return seen


def test_ctrl_c_in_a_terminal_reaches_the_child_once_and_it_may_read_from_there(tmp_path):
    code = """
import signal, sys
count = 0
def say(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, say)
print("ready", flush=True)
line = sys.stdin.readline().strip()
print("read", line, "after", count, flush=True)
sys.exit(4)
"""
    controller, terminal = pty.openpty()
    process = fdl_around(
        code,
        tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(terminal)
    read_until(controller, b"ready")
    os.write(controller, b"\x03")
    read_until(controller, b"^C")
    os.write(controller, b"hello\n")
    seen = read_until(controller, b"after 1")
    assert b"read hello after 1" in seen
    assert process.wait(timeout=30) == 130
    os.close(controller)


def _take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_program_is_asked_and_answers(tmp_path):
    answer = ask(["sh", "-c", "cat; echo no >&2; exit 3"], words="yes", directory=str(tmp_path))
    assert answer == (3, "yes", "no\n")


def test_program_that_is_not_there_or_hangs_is_an_error():
    with pytest.raises(LaunchError, match="No such file") as failed:
        ask(["/nowhere/x"])
    assert failed.value.exit_code == 127
    with pytest.raises(LaunchError, match=r"no answer within 0\.05 s"):
        ask(["sleep", "9"], limit_s=0.05)
