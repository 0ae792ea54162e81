"""Each case is a process of its own: it ends by the signal that the guard looks after."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flodl.monitor import termination

FOLDER = Path(termination.__file__).parent
"""Where the module lies, which needs no other: a process that loads torch takes seconds."""

BEGIN = """
import os, signal, sys, threading
sys.path.append(sys.argv[1])
import termination
from termination import TerminationGuard
termination._PATIENCE_S = 0.05

class Run:
    lock, asked = threading.RLock(), threading.Event()
    def end(self):
        self.asked.set()
        with self.lock:
            print("ended", flush=True)

def wait():
    threading.Event().wait()

def term():
    os.kill(os.getpid(), signal.SIGTERM)

run = Run()
guard = TerminationGuard(run.end)
"""

CASES = {
    "the end needs what the main thread holds": """
guard.watch_signal()
with run.lock:
    term()
    run.asked.wait()
    print("held on", flush=True)
wait()
""",
    "a handler was there before": """
signal.signal(signal.SIGTERM, lambda *_: print("former", flush=True) or sys.exit(3))
guard.watch_signal()
term()
wait()
""",
    "the signal was ignored before": """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
guard.watch_signal()
term()
run.asked.wait()
""",
    "the end fails": """
run.end = None
class Broken:
    def end(self):
        raise ValueError("cannot end")
broken = Broken()
guard = TerminationGuard(broken.end)
guard.watch_signal()
term()
wait()
""",
    "a child is forked": """
guard.watch_signal()
child = os.fork()
if not child:
    term()
    wait()
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""",
    "it is released in another thread": """
guard.watch_signal()
thread = threading.Thread(target=guard.release)
thread.start()
thread.join()
del run
term()
wait()
""",
    "nothing happens": "",
}


@pytest.mark.parametrize(
    ("case", "code", "out"),
    [
        ("the end needs what the main thread holds", -signal.SIGTERM, "held on\nended\n"),
        ("a handler was there before", 3, "ended\nformer\n"),
        ("the signal was ignored before", 0, "ended\n"),
        ("the end fails", -signal.SIGTERM, ""),
        ("a child is forked", 0, "child -15\nended\n"),
        ("it is released in another thread", -signal.SIGTERM, ""),
        ("nothing happens", 0, "ended\n"),
    ],
)
def test_a_process_ends_as_it_would_have_after_the_end_of_its_run(case, code, out):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + CASES[case], str(FOLDER)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, out), done.stderr
