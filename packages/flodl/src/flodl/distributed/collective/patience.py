"""Waiting that a message can cut short: collectives are polled, never blocked on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from flodl.distributed.collective.errors import CollectiveError, Interrupted

__all__ = ["Interrupt", "call_patiently", "never", "poll_until"]

Interrupt: TypeAlias = Callable[[], bool]
"""Says whether to stop waiting, such as whether a mailbox holds a message."""

Result = TypeVar("Result")

_SHORTEST_S = 0.0002
_LONGEST_S = 0.002
_GROWTH = 1.02


def never() -> bool:
    """Interrupt nothing."""
    return False


def poll_until(is_done: Callable[[], bool], *, timeout_s: float, interrupted: Interrupt) -> bool:
    """Return True once ``is_done()``, False when interrupted or out of time.

    Asks every 0.2 ms at first and every 2 ms after a tenth of a second: the time that an answer
    waits to be seen is a fiftieth of what it took.
    """
    deadline = time.monotonic() + timeout_s
    pause = _SHORTEST_S
    while not is_done():
        if interrupted() or time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_S)
    return True


def call_patiently(
    function: Callable[[], Result], *, what: str, timeout_s: float, interrupted: Interrupt
) -> Result:
    """Run a function that blocks on a thread of its own, and return what it returns.

    A call that is given up goes on until it ends by itself; its result is then dropped there.

    Raises:
        Interrupted: ``interrupted()`` became true first.
        CollectiveError: The time ran out first.
    """
    call = _Call(function)
    thread = threading.Thread(target=call.run, name=f"flodl-{what}", daemon=True)
    thread.start()
    if not poll_until(lambda: not thread.is_alive(), timeout_s=timeout_s, interrupted=interrupted):
        if interrupted():
            raise Interrupted(f"{what}: given up for a message")
        raise CollectiveError(f"{what}: not done after {timeout_s:g} s")
    if call.error is not None:
        raise call.error
    return call.results[0]


class _Call(Generic[Result]):
    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            self.error = error
