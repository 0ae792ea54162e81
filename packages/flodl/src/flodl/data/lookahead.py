"""Work done ahead in background threads and handed out in order; it can be left at any point."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from flodl.core.errors import DataStallError

if TYPE_CHECKING:
    from collections.abc import Callable

Job = TypeVar("Job")
Result = TypeVar("Result")

_EXIT_WAIT_S = 5.0

_Task: TypeAlias = "tuple[Future[Result], Callable[[Job], Result], Job]"


class Workers(Generic[Job, Result]):
    """Threads that do jobs in the order given, and end when told or no longer referred to.

    They are daemons, so that one which is stuck in a read does not keep the process from ending;
    those that are not stuck are waited for then.
    """

    def __init__(self, count: int, name: str) -> None:
        self._tasks: SimpleQueue[_Task[Result, Job] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=_serve, args=(self._tasks,), name=f"{name}-{n}", daemon=True)
            for n in range(count)
        ]
        self._end = weakref.finalize(self, _send_end, self._tasks, count)
        self._end.atexit = False
        _join_at_exit(self)
        for thread in self._threads:
            thread.start()

    def submit(self, do: Callable[[Job], Result], job: Job) -> Future[Result]:
        """Return the future of ``do(job)``."""
        future: Future[Result] = Future()
        self._tasks.put((future, do, job))
        return future

    def close(self, *, wait_s: float | None) -> None:
        """End the threads after what they are doing; wait for that, at most ``wait_s`` seconds."""
        self._end()
        for thread in self._threads:
            thread.join(wait_s)


def _serve(tasks: SimpleQueue[_Task[Result, Job] | None]) -> None:
    while (task := tasks.get()) is not None:
        _do(*task)
        del task  # or the last batch lives on while the thread waits


def _do(future: Future[Result], do: Callable[[Job], Result], job: Job) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = do(job)
    except BaseException as error:  # noqa: BLE001 - whoever takes the result raises it
        future.set_exception(error)
    else:
        future.set_result(result)


def _send_end(tasks: SimpleQueue[_Task[Result, Job] | None], count: int) -> None:
    for _ in range(count):
        tasks.put(None)


_running: weakref.WeakSet[Workers[object, object]] = weakref.WeakSet()


def _join_at_exit(workers: Workers[Job, Result]) -> None:
    if not _running:
        atexit.unregister(_join_running)
        atexit.register(_join_running)
    _running.add(workers)  # type: ignore[arg-type]  # a set of workers of any kind


def _join_running() -> None:
    for workers in list(_running):
        workers.close(wait_s=_EXIT_WAIT_S)


class Lookahead(Generic[Job, Result]):
    """Results of jobs, worked on ahead of time, in the order of the jobs.

    A thread never waits for the consumer: taking a result asks for more. So the rest can be left
    at any point, and an error waits in its place until it is taken.

    Args:
        do: Does one job; called in a thread.
        jobs: Returns the next job, or ``None`` when there is none now.
        workers: Number of threads.
        timeout: Seconds that taking one result may wait.
    """

    def __init__(
        self,
        do: Callable[[Job], Result],
        jobs: Callable[[], Job | None],
        *,
        workers: int = 1,
        timeout: float | None = None,
    ) -> None:
        self._do = do
        self._jobs = jobs
        self._timeout = timeout
        self._lock = threading.Lock()
        self._pending: deque[tuple[Job, Future[Result]]] = deque()
        self._claimed: tuple[Job, Future[Result]] | None = None
        self._workers: Workers[Job, Result] = Workers(workers, "flodl-data")

    def fill(self, depth: int) -> None:
        """Ask for results until ``depth`` are on their way or there are no jobs.

        Any thread may call it.
        """
        with self._lock:
            while len(self._pending) + (self._claimed is not None) < depth:
                job = self._jobs()
                if job is None:
                    return
                self._pending.append((job, self._workers.submit(self._do, job)))

    def claim(self) -> Job | None:
        """Return the job whose result ``take`` gives next, ``None`` when nothing is on its way."""
        with self._lock:
            if self._claimed is None and self._pending:
                self._claimed = self._pending.popleft()
            return None if self._claimed is None else self._claimed[0]

    def take(self) -> Result:
        """Return the result of the claimed job, waiting for it; raise what its job raised.

        Raises:
            DataStallError: It took longer than the timeout.
            LookupError: Nothing is on its way.
        """
        self.claim()
        if self._claimed is None:
            raise LookupError("no result is on its way: fill first")
        future = self._claimed[1]
        if self._timeout is not None and not wait([future], self._timeout).done:
            raise DataStallError(
                f"no batch within timeout={self._timeout:g} s",
                hint="see where the data set hangs, or raise the timeout",
            )
        try:
            return future.result()
        finally:
            if future.done():  # Ctrl-C during the wait loses no batch
                self._claimed = None

    def skip(self) -> None:
        """Drop the claimed job: its result is not wanted any more."""
        if self._claimed is not None:
            self._claimed[1].cancel()
            self._claimed = None

    def close(self, *, wait: bool) -> None:
        """Drop what was not taken and end the threads, after the jobs they are at.

        It waits for those no longer than taking a result may wait.
        """
        with self._lock:
            for _, future in self._pending:
                future.cancel()
            self._pending.clear()
        self._workers.close(wait_s=self._timeout if wait else 0)

    def __del__(self) -> None:
        for _, future in getattr(self, "_pending", ()):
            future.cancel()
