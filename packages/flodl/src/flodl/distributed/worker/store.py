"""A rank's access to the controller's store, over the link that it has anyway."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from flodl.distributed.collective.errors import CollectiveError, StoreClosed, StoreTimeout
from flodl.distributed.protocol.messages import StoreReply, StoreRequest
from flodl.distributed.protocol.messages.store import StoreOp

_MARGIN_S = 5.0
TIMEOUT = "timeout"
"""Error of a reply whose keys did not come in time."""


class RemoteStore:
    """A ``StoreClient`` whose operations are answered by the controller.

    Args:
        send: Sends a request; any thread may call it.
        timeout_s: Seconds in which an operation that waits for nothing must be answered.
    """

    def __init__(self, send: Callable[[StoreRequest], None], timeout_s: float = 60.0) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[StoreReply]] = {}
        self._obstacle: str | None = None

    def set(self, key: str, value: bytes) -> None:
        """Write a value, over what is there."""
        self._ask("set", (key,), value=bytes(value))

    def get(self, key: str) -> bytes:
        """Return the value of a key, waiting for it if need be."""
        return self._ask("get", (key,), timeout_s=self._timeout_s).value

    def add(self, key: str, amount: int) -> int:
        """Add to a decimal number, which starts at 0, and return the sum."""
        return self._ask("add", (key,), amount=amount).number

    def wait(self, keys: Sequence[str], timeout_s: float) -> None:
        """Return once all keys are there.

        Raises:
            StoreTimeout: They are not there in time.
            StoreClosed: The link is gone, or the rank has something more urgent to do.
        """
        self._ask("wait", tuple(keys), timeout_s=timeout_s)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return self._ask("check", tuple(keys)).number == 1

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write ``desired`` if the value is ``expected``, and return the value afterwards."""
        reply = self._ask("compare_set", (key,), value=bytes(desired), expected=bytes(expected))
        return reply.value

    def delete(self, key: str) -> bool:
        """Remove a key and return whether it was there."""
        return self._ask("delete", (key,)).number == 1

    def answer(self, reply: StoreReply) -> None:
        """Give a reply to the thread that waits for it."""
        with self._lock:
            waiting = self._waiting.pop(reply.request_id, None)
        if waiting is not None:
            waiting.set_result(reply)

    def close(self, reason: str) -> None:
        """Let all operations fail, those that wait and those to come, until :meth:`reopen`."""
        with self._lock:
            self._obstacle = reason
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(StoreClosed(f"store: {reason}"))

    def reopen(self) -> None:
        """Take operations again."""
        with self._lock:
            self._obstacle = None

    def _ask(
        self,
        op: StoreOp,
        keys: tuple[str, ...],
        *,
        value: bytes = b"",
        expected: bytes = b"",
        amount: int = 0,
        timeout_s: float = 0.0,
    ) -> StoreReply:
        number = next(self._numbers)
        future: Future[StoreReply] = Future()
        with self._lock:
            if self._obstacle is not None:
                raise StoreClosed(f"{op}({', '.join(keys)}): {self._obstacle}")
            self._waiting[number] = future
        self._send(
            StoreRequest(
                request_id=number,
                op=op,
                keys=keys,
                value=value,
                expected=expected,
                amount=amount,
                timeout=timeout_s,
            )
        )
        try:
            reply = future.result((timeout_s or self._timeout_s) + _MARGIN_S)
        except TimeoutError:
            with self._lock:
                self._waiting.pop(number, None)
            raise StoreTimeout(f"{op}({', '.join(keys)}): the controller does not answer") from None
        if reply.ok:
            return reply
        if reply.error == TIMEOUT:
            raise StoreTimeout(f"{op}({', '.join(keys)}): not there after {timeout_s:g} s")
        raise CollectiveError(f"{op}({', '.join(keys)}): {reply.error}")
