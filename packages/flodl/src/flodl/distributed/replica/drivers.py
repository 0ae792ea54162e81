"""A thread for each device, which drives the replica on it."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, final

import torch

T = TypeVar("T")
IDLE_S = 0.2
"""After which a thread without work ends; the next task starts another."""


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make a GPU the current one for a block; the CPU needs nothing."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@final
class Drivers:
    """Runs tasks side by side, one for each device, as if the calling thread ran them.

    Gradient mode, autocast, context variables and current streams are the caller's. Replicas that
    share a device, as those on the CPU do, draw from its one generator of random numbers: they take
    turns, so that a seed gives the same numbers in each run.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = tuple(devices)
        self._drivers = [_Driver(f"flodl-replica-{rank}") for rank in range(len(devices))]

    def run(self, tasks: Sequence[Callable[[], T] | None]) -> list[T | None]:
        """Run a task for each replica, wait for all, and return what they gave.

        Raises:
            Whatever the first task that failed raised, with a note of its device.
        """
        modes = _Modes(self._devices)
        futures: list[Future[T] | None] = []
        running: dict[torch.device, Future[T]] = {}
        for rank, (driver, task) in enumerate(zip(self._drivers, tasks, strict=True)):
            if task is None:
                futures.append(None)
                continue
            device = self._devices[rank]
            if device in running:
                running[device].exception()  # waits
            running[device] = driver.submit(modes.wrapped(task, rank))
            futures.append(running[device])
        # All of them: a task left behind would go on working on what the caller gives up.
        errors = [None if future is None else future.exception() for future in futures]
        for rank, error in enumerate(errors):
            if error is not None:
                error.add_note(f"raised by replica {rank} on {self._devices[rank]}")
                raise error
        return [None if future is None else future.result() for future in futures]


class _Driver:
    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._tasks.put((task, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._drive, name=self._name, daemon=True)
                self._thread.start()
        return future

    def _drive(self) -> None:
        while True:
            try:
                task, future = self._tasks.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._tasks.empty():
                        self._thread = None
                        return
                continue
            try:
                future.set_result(task())
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                future.set_exception(error)
            del task, future  # what a task held must not live until the next one comes


class _Modes:
    """What torch keeps for each thread, as it is for the one that makes this."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = {
            kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in {device.type for device in devices}
        }
        self._caches = torch.is_autocast_cache_enabled()
        # Of all devices: a copy from one to another is ordered by the streams of both.
        self._streams = [torch.cuda.current_stream(d) for d in devices if d.type == "cuda"]

    def wrapped(self, task: Callable[[], T], rank: int) -> Callable[[], T]:
        context = contextvars.copy_context()

        def call() -> T:
            with self._entered(self._devices[rank]):
                return context.run(task)

        return call

    @contextlib.contextmanager
    def _entered(self, device: torch.device) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for stream in self._streams:
                stack.enter_context(torch.cuda.stream(stream))
            stack.enter_context(on_device(device))
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for kind, (on, dtype) in self._autocast.items():
                stack.enter_context(
                    torch.autocast(kind, dtype=dtype, enabled=on, cache_enabled=self._caches)
                )
            yield
