"""Work beside training, such as saving: one thread, in the order it was handed over."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

_logger = logging.getLogger(__name__)

_R = TypeVar("_R")
OnError = Callable[[BaseException], object]


@dataclass(eq=False, slots=True)
class _Job(Generic[_R]):
    work: Callable[[], _R]
    future: Future[_R]
    key: object = None


class _Queue:
    """What a worker and its thread share; it does not keep the worker alive."""

    def __init__(self, max_pending: int | None, on_error: OnError | None) -> None:
        self.changed = threading.Condition()
        self.jobs: deque[_Job[Any]] = deque()
        self.max_pending = max_pending
        self.is_running = False
        self.is_closed = False
        self.errors: list[BaseException] = []
        self.on_error = on_error

    def serve(self) -> None:
        """Run jobs in order until the queue is closed and empty."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.jobs or self.is_closed)
                if not self.jobs:
                    return
                job = self.jobs.popleft()
                self.is_running = True
                self.changed.notify_all()
            try:
                self._run(job)
            finally:
                del job  # a snapshot in it would live on until the next job
                with self.changed:
                    self.is_running = False
                    self.changed.notify_all()

    def _run(self, job: _Job[Any]) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            result = job.work()
        except BaseException as error:  # noqa: BLE001 - it is logged, kept and raised by finish()
            job.future.set_exception(error)
            self._report(error)
        else:
            job.future.set_result(result)

    def _report(self, error: BaseException) -> None:
        _logger.error("background job failed: %s", error, exc_info=error)
        with self.changed:
            self.errors.append(error)
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception:
                _logger.exception("on_error failed")

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


class CpuWorker:
    """Runs jobs one after the other in a thread of its own.

    Use it in a ``with`` block or call ``finish()``; jobs that are left at the end of the program
    are run before it ends.

    Args:
        max_pending: The most jobs that may wait; by default as many as come.
        on_error: Called in the worker's thread with each exception of a job.
    """

    def __init__(self, max_pending: int | None = None, on_error: OnError | None = None) -> None:
        if max_pending is not None and max_pending < 1:
            raise ValueError(f"CpuWorker(max_pending={max_pending}): must be at least 1")
        self._queue = _Queue(max_pending, on_error)
        self._thread = threading.Thread(
            target=self._queue.serve, name="flodl-cpu-worker", daemon=True
        )
        self._thread.start()
        # Also runs at the end of the program, while daemon threads still work.
        self._ending = weakref.finalize(self, _end, self._queue, self._thread)

    def submit(
        self, fn: Callable[..., _R], *args: Any, block: bool = True, **kwargs: Any
    ) -> Future[_R] | None:
        """Queue ``fn(*args, **kwargs)`` and return its future.

        When ``max_pending`` jobs wait already, it blocks until one has begun; with ``block=False``
        it returns ``None`` instead.

        Raises:
            RuntimeError: The worker is finished, or a job waits for room in its own queue.
        """
        job = _Job(lambda: fn(*args, **kwargs), Future[_R]())
        return self._put(job, block=block)

    def submit_latest(
        self, key: object, fn: Callable[..., _R], *args: Any, **kwargs: Any
    ) -> Future[_R]:
        """Queue a job that takes the place of the one with this key that has not begun.

        The replaced job is never run and its future is canceled: of several checkpoints that
        wait, only the newest is written.

        Raises:
            RuntimeError: The worker is finished, or a job waits for room in its own queue.
        """
        job = _Job(lambda: fn(*args, **kwargs), Future[_R](), key)
        queue = self._queue
        with queue.changed:
            self._check_open()
            for index, waiting in enumerate(queue.jobs):
                if waiting.key == key and key is not None:
                    queue.jobs[index] = job
                    replaced = waiting
                    break
            else:
                replaced = None
        if replaced is None:
            self._put(job, block=True)
        else:
            replaced.future.cancel()
        return job.future

    def _put(self, job: _Job[_R], *, block: bool) -> Future[_R] | None:
        queue = self._queue
        with queue.changed:
            self._check_open()
            while queue.max_pending is not None and len(queue.jobs) >= queue.max_pending:
                if not block:
                    return None
                if threading.current_thread() is self._thread:
                    raise RuntimeError("a job of this worker waits for room in its own queue")
                queue.changed.wait()
                self._check_open()
            queue.jobs.append(job)
            queue.changed.notify_all()
        return job.future

    def _check_open(self) -> None:
        if self._queue.is_closed:
            raise RuntimeError("the worker is finished and takes no more jobs; make another one")

    @property
    def is_idle(self) -> bool:
        """True when no job runs and none waits."""
        with self._queue.changed:
            return not self._queue.is_running and not self._queue.jobs

    @property
    def pending(self) -> int:
        """Number of jobs that wait."""
        with self._queue.changed:
            return len(self._queue.jobs)

    def finish(self, timeout: float | None = None) -> None:
        """Run what is queued, end the thread, and raise the first error that a job raised.

        Further errors are attached to it as notes. Later calls do nothing.

        Raises:
            TimeoutError: Jobs are left after ``timeout`` seconds; they go on.
            RuntimeError: A job called it.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a job cannot finish the worker that runs it")
        self._queue.close()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(
                f"{self.pending} background jobs wait and one runs after {timeout} seconds"
            )
        errors, self._queue.errors = self._queue.errors, []
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"another job failed: {other!r}")
            raise errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.finish()
        except BaseException as failed:
            if error is None:
                raise
            error.add_note(f"a background job failed as well: {failed!r}")


def _end(queue: _Queue, thread: threading.Thread) -> None:
    queue.close()
    # The last reference may have been dropped by a job.
    if threading.current_thread() is not thread:
        thread.join()
