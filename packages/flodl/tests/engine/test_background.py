import gc
import logging
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError

import pytest

from flodl.engine.background import CpuWorker

DEADLINE = 30


@pytest.fixture
def busy():
    """A worker that is kept busy until ``release`` is called."""
    workers = []

    def make(**kwargs):
        worker, started, gate = CpuWorker(**kwargs), threading.Event(), threading.Event()
        workers.append((worker, gate))

        def hold():
            started.set()
            assert gate.wait(DEADLINE)

        worker.submit(hold)
        assert started.wait(DEADLINE)
        return worker, gate.set

    yield make
    for worker, gate in workers:
        gate.set()
        worker.finish(DEADLINE)


def test_jobs_run_in_order_in_one_other_thread():
    seen = []
    with CpuWorker() as worker:
        futures = [
            worker.submit(lambda k: seen.append((k, threading.current_thread())) or k * 2, k)
            for k in range(20)
        ]
    assert [future.result() for future in futures] == [2 * k for k in range(20)]
    assert [k for k, _ in seen] == list(range(20))
    assert len({thread for _, thread in seen} - {threading.current_thread()}) == 1


def test_keyword_arguments_reach_the_job():
    with CpuWorker() as worker:
        assert worker.submit(dict, a=1, b=2).result(DEADLINE) == {"a": 1, "b": 2}


def test_idle_means_nothing_runs_and_nothing_waits(busy):
    worker, release = busy()
    assert (worker.is_idle, worker.pending) == (False, 0)
    future = worker.submit(lambda: None)
    assert (worker.is_idle, worker.pending) == (False, 1)
    release()
    future.result(DEADLINE)
    worker.finish(DEADLINE)
    assert (worker.is_idle, worker.pending) == (True, 0)


def test_the_latest_job_of_a_key_replaces_the_waiting_one_in_its_place(busy):
    worker, release = busy()
    order = []
    old = worker.submit_latest("checkpoint", order.append, "old")
    other = worker.submit_latest("other", order.append, "other")
    new = worker.submit_latest("checkpoint", order.append, "new")
    assert worker.pending == 2
    assert old.cancelled()
    release()
    new.result(DEADLINE)
    other.result(DEADLINE)
    assert order == ["new", "other"]
    with pytest.raises(CancelledError):
        old.result()


def test_a_job_that_has_begun_is_not_replaced(busy):
    worker, release = busy()
    ran = []
    gate = threading.Event()
    begun = threading.Event()

    def slow():
        begun.set()
        assert gate.wait(DEADLINE)
        ran.append("first")

    worker.submit_latest("k", slow)
    release()
    assert begun.wait(DEADLINE)
    second = worker.submit_latest("k", ran.append, "second")
    gate.set()
    second.result(DEADLINE)
    assert ran == ["first", "second"]


def test_a_job_that_was_canceled_is_not_run(busy):
    worker, release = busy()
    ran = []
    future = worker.submit(ran.append, 1)
    assert future.cancel()
    release()
    worker.submit(ran.append, 2).result(DEADLINE)
    assert ran == [2]


def test_a_full_queue_blocks_or_says_so(busy):
    worker, release = busy(max_pending=1)
    worker.submit(lambda: None)
    assert worker.submit(lambda: None, block=False) is None
    done = []
    thread = threading.Thread(target=lambda: done.append(worker.submit(lambda: 5).result(DEADLINE)))
    thread.start()
    assert not done
    release()
    thread.join(DEADLINE)
    assert done == [5]


def test_a_job_that_would_wait_for_itself_is_an_error():
    worker = CpuWorker(max_pending=1)
    inner = []

    def refill():
        worker.submit(lambda: None)
        try:
            worker.submit(lambda: None)
        except RuntimeError as error:
            inner.append(str(error))

    worker.submit(refill).result(DEADLINE)
    worker.finish(DEADLINE)
    assert inner == ["a job of this worker waits for room in its own queue"]


def test_an_error_is_logged_at_once_kept_and_raised_at_the_end(caplog):
    told = []
    worker = CpuWorker(on_error=told.append)
    first = worker.submit(int, "x")
    second = worker.submit(int, "y")
    third = worker.submit(int, "3")
    assert third.result(DEADLINE) == 3
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 2
    assert first.exception() is told[0]
    with pytest.raises(ValueError, match="'x'") as caught:
        worker.finish(DEADLINE)
    assert caught.value is told[0]
    assert caught.value.__notes__ == [f"another job failed: {second.exception()!r}"]
    worker.finish(DEADLINE)


def test_even_a_system_exit_does_not_end_the_worker():
    worker = CpuWorker()
    future = worker.submit(sys.exit, 3)
    assert worker.submit(lambda: 1).result(DEADLINE) == 1
    assert isinstance(future.exception(), SystemExit)
    with pytest.raises(SystemExit):
        worker.finish(DEADLINE)


def test_an_error_in_on_error_is_logged(caplog):
    def bad(error):
        raise KeyError("bad")

    worker = CpuWorker(on_error=bad)
    worker.submit(int, "x")
    with pytest.raises(ValueError, match="'x'"):
        worker.finish(DEADLINE)
    assert "on_error failed" in caplog.text


def test_a_finished_worker_takes_no_jobs():
    worker = CpuWorker()
    worker.finish(DEADLINE)
    for call in (lambda: worker.submit(int), lambda: worker.submit_latest("k", int)):
        with pytest.raises(RuntimeError, match="takes no more jobs"):
            call()


def test_finish_drains_what_waits_and_says_when_time_is_up(busy):
    worker, release = busy()
    future = worker.submit(lambda: 7)
    with pytest.raises(TimeoutError, match="1 background jobs wait"):
        worker.finish(0.01)
    release()
    worker.finish(DEADLINE)
    assert future.result() == 7


def test_a_job_cannot_finish_its_own_worker():
    worker = CpuWorker()
    with pytest.raises(RuntimeError, match="cannot finish the worker that runs it"):
        worker.submit(worker.finish).result(DEADLINE)
    with pytest.raises(RuntimeError):
        worker.finish(DEADLINE)


def test_an_error_in_the_block_is_not_hidden_by_one_of_a_job():
    with pytest.raises(KeyError) as caught, CpuWorker() as worker:
        worker.submit(int, "x")
        raise KeyError("mine")
    assert "a background job failed as well: ValueError" in caught.value.__notes__[0]


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match="max_pending=0"):
        CpuWorker(max_pending=0)


def test_a_worker_that_is_dropped_ends_and_jobs_do_not_outlive_their_run():
    class Big:
        pass

    worker = CpuWorker()
    big = Big()
    gone = weakref.ref(big)
    worker.submit(lambda value: None, big).result(DEADLINE)
    del big
    worker.submit(lambda: None).result(DEADLINE)
    gc.collect()
    assert gone() is None
    thread = worker._thread
    del worker
    gc.collect()
    thread.join(DEADLINE)
    assert not thread.is_alive()


EXIT = """
import sys, threading
from flodl.engine.background import CpuWorker
worker = CpuWorker()
gate = threading.Event()
worker.submit(gate.wait)
for k in range(3):
    worker.submit(lambda k=k: (sys.stdout.write(f"{k}\\n"), sys.stdout.flush()))
gate.set()
"""


def test_what_is_queued_is_run_before_the_program_ends():
    done = subprocess.run(
        [sys.executable, "-c", EXIT], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n1\n2\n", "")
