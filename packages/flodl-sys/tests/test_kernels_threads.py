"""Threads, forks, the GIL and the caller's floating-point settings."""

import ctypes
import ctypes.util
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from flodl_sys import kernels

pytestmark = pytest.mark.usefixtures("native")

FE_UPWARD = 0x800  # x86
LONG = 1_500_000  # elements that are worth several threads


def pair(length):
    rng = np.random.default_rng(5)
    return rng.random(length, np.float32), rng.random(length, np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("length", [262_143, 524_288, 2_000_003])
def test_the_number_of_threads_does_not_change_a_bit(threads, length):
    x, y = pair(length)
    out = np.zeros(length, np.float32)
    kernels.weighted_average([x, y], [0.3, 0.7], out, threads=threads)
    wanted = np.float32(0.3) * x + np.float32(0.7) * y
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_the_default_number_of_threads_follows_the_affinity():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert kernels.available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert kernels.available_cores() == len(allowed)


# Python counts the workers, which is what this test is about
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_of_a_process_that_used_threads_computes_too():
    x, y = pair(LONG)
    kernels.easgd_blend(x, y, 0.5, threads=4)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a hang ends the child, and the parent sees an empty pipe
        kernels.easgd_blend(x, y, 0.5, threads=4)
        os.write(writer, x[-1:].tobytes())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    kernels.easgd_blend(x, y, 0.5, threads=4)
    assert answer == x[-1:].tobytes()


def test_a_process_that_may_start_no_thread_still_gets_its_result():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("no thread; [2.0]\n", "")


WITHOUT_THREADS = """
import array, resource, threading
from flodl_sys import kernels

p, c = array.array("f", [1.0]) * 1_500_000, array.array("f", [3.0]) * 1_500_000
kernels.easgd_blend(p, p, 0.5, threads=1)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**21, -1))  # too little for a thread's stack
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("no thread; ", end="")
kernels.easgd_blend(p, c, 0.5, threads=4)
print(sorted(set(p)))
"""


def test_callers_on_several_threads_share_the_workers_and_get_their_own_results():
    wrong = []

    def call(seed):
        rng = np.random.default_rng(seed)
        x, y = rng.random(LONG, np.float32), rng.random(LONG, np.float32)
        wanted = np.float32(0.5) * x + np.float32(0.5) * y
        for _ in range(5):
            out = np.zeros(LONG, np.float32)
            kernels.weighted_average([x, y], [0.5, 0.5], out, threads=3)
            if not np.array_equal(out, wanted):
                wrong.append(seed)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_workers_follow_their_caller_to_the_processors_it_was_moved_to():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor leaves nothing to follow to")
    done = subprocess.run(
        [sys.executable, "-c", MOVED], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("the worker follows\n", "")


MOVED = """
import array, os, time
from flodl_sys import kernels

p = array.array("f", [1.0]) * 8_000_000
kernels.easgd_blend(p, p, 0.5, threads=2)
(worker,) = {int(task) for task in os.listdir("/proc/self/task")} - {os.getpid()}
only = {min(os.sched_getaffinity(0))}
assert os.sched_getaffinity(worker) != only
os.sched_setaffinity(0, only)
deadline = time.monotonic() + 100  # a call may be over before the worker wakes up
while os.sched_getaffinity(worker) != only and time.monotonic() < deadline:
    kernels.easgd_blend(p, p, 0.5, threads=2)
print("the worker follows" if os.sched_getaffinity(worker) == only else "it stays")
"""


def test_other_python_threads_run_during_a_call():
    x, y = pair(4_000_000)
    buffers, weights, out = [x, y] * 8, [1 / 16] * 16, np.zeros_like(x)

    def longest_pause_over_call():
        span = []
        started = threading.Event()

        def work():
            started.set()
            begin = time.perf_counter()
            kernels.weighted_average(buffers, weights, out, threads=1)
            span.append(time.perf_counter() - begin)

        worker = threading.Thread(target=work)
        worker.start()
        started.wait()
        longest, last = 0.0, time.perf_counter()
        while worker.is_alive():
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        worker.join()
        return longest / span[0]

    # with the GIL held, this thread stands still for the whole call, every time
    assert min(longest_pause_over_call() for _ in range(10)) < 0.5


def test_the_callers_rounding_mode_does_not_reach_the_kernels():
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    x, y = pair(LONG)
    wanted = np.float32(0.3) * x + np.float32(0.7) * y
    out = np.zeros_like(x)
    if libm.fesetround(FE_UPWARD) != 0:
        pytest.skip("this processor spells rounding modes differently")
    try:
        kernels.weighted_average([x, y], [0.3, 0.7], out, threads=2)
        mode = libm.fegetround()
    finally:
        libm.fesetround(0)
    np.testing.assert_array_equal(out, wanted)
    assert mode == FE_UPWARD
