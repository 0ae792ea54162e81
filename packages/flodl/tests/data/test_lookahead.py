from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from flodl.core.errors import DataStallError
from flodl.data.lookahead import Lookahead


def jobs(count: int) -> Callable[[], int | None]:
    numbers = iter(range(count))
    return lambda: next(numbers, None)


def drained(ahead: Lookahead[int, Any], depth: int) -> list[Any]:
    found = []
    while True:
        ahead.fill(depth)
        if ahead.claim() is None:
            return found
        found.append(ahead.take())


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_jobs_and_the_threads_end(workers: int) -> None:
    before = threading.active_count()
    first_may_end = threading.Event()

    def slow_first(job: int) -> int:
        if job == 0 and workers > 1:
            assert first_may_end.wait(10)
        if job == 1:
            first_may_end.set()
        return job * 10

    ahead = Lookahead(slow_first, jobs(5), workers=workers)
    assert drained(ahead, depth=3) == [0, 10, 20, 30, 40]
    ahead.close(wait=True)
    assert threading.active_count() == before


def test_jobs_that_appear_later_are_done_too() -> None:
    waiting: deque[int] = deque([1])
    ahead: Lookahead[int, int] = Lookahead(
        lambda job: -job, lambda: waiting.popleft() if waiting else None
    )
    assert drained(ahead, depth=2) == [-1]
    waiting.append(2)
    assert drained(ahead, depth=2) == [-2]
    ahead.close(wait=True)


def test_a_claimed_job_counts_among_those_on_their_way() -> None:
    numbers = iter(range(10))
    asked: list[int] = []

    def next_job() -> int:
        asked.append(next(numbers))
        return asked[-1]

    ahead = Lookahead(lambda job: job, next_job)
    ahead.fill(2)
    assert ahead.claim() == ahead.claim() == 0
    ahead.fill(2)
    assert asked == [0, 1]
    assert ahead.take() == 0
    ahead.fill(2)
    assert asked == [0, 1, 2]
    ahead.close(wait=True)


def test_a_job_that_is_skipped_is_not_begun_and_has_no_result() -> None:
    may_end, done = threading.Event(), []

    def waits(job: int) -> int:
        assert may_end.wait(10)
        done.append(job)
        return job

    ahead = Lookahead(waits, jobs(3))
    ahead.fill(3)
    assert ahead.claim() == 0
    ahead.skip()
    assert ahead.claim() == 1
    ahead.skip()
    may_end.set()
    assert ahead.take() == 2
    ahead.close(wait=True)
    assert done in ([0, 2], [2])  # the thread may have begun the first


def test_taking_when_nothing_is_on_its_way_is_an_error() -> None:
    ahead = Lookahead(lambda job: job, jobs(0))
    ahead.fill(3)
    assert ahead.claim() is None
    with pytest.raises(LookupError, match="fill first"):
        ahead.take()
    ahead.skip()
    ahead.close(wait=True)


def test_an_error_waits_in_its_place() -> None:
    def fails(job: int) -> int:
        if job == 1:
            raise ValueError("one")
        return job

    ahead = Lookahead(fails, jobs(3))
    ahead.fill(3)
    assert ahead.take() == 0
    with pytest.raises(ValueError, match="one"):
        ahead.take()
    assert ahead.take() == 2
    ahead.close(wait=True)


def test_an_interrupt_while_waiting_loses_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def waits(job: int) -> int:
        assert may_end.wait(10)
        return job

    ahead = Lookahead(waits, jobs(2))
    ahead.fill(2)

    def interrupted(self: Future[Any], timeout: float | None = None) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ahead.take()
    may_end.set()
    assert drained(ahead, depth=2) == [0, 1]
    ahead.close(wait=True)


def test_a_result_that_does_not_come_in_time_is_a_stall() -> None:
    may_end = threading.Event()
    ahead = Lookahead(lambda job: may_end.wait(30), jobs(1), timeout=0.01)
    ahead.fill(1)
    with pytest.raises(DataStallError, match="no batch within timeout=0.01 s"):
        ahead.take()
    ahead.close(wait=False)
    may_end.set()


def test_what_was_not_begun_is_never_begun_after_close() -> None:
    begun: list[int] = []
    may_end = threading.Event()

    def waits(job: int) -> None:
        begun.append(job)
        assert may_end.wait(10)

    ahead = Lookahead(waits, jobs(5))
    ahead.fill(5)
    ahead.close(wait=False)
    may_end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("flodl-data"):
            thread.join(10)
    assert begun in ([], [0])


def test_a_process_ends_although_a_read_hangs() -> None:
    program = (
        "import flodl.data.lookahead as l, threading, time\n"
        "l._EXIT_WAIT_S = 0.1\n"
        "ahead = l.Lookahead(lambda job: threading.Event().wait(), lambda: 1)\n"
        "ahead.fill(1)\n"
        "print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
