"""torch's store interface over any `StoreClient`: groups form over the run's one port."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias, final

from torch._C._distributed_c10d import Store

from flodl.distributed.collective.errors import StoreClosed, StoreTimeout
from flodl.distributed.collective.store import StoreClient

__all__ = ["ControlStore"]

Text: TypeAlias = str | bytes

_SLICE_S = 0.5  # how long a wait may go on after `close`


@final
class ControlStore(Store):
    """Lets torch form groups over a `StoreClient`.

    Keep a reference for as long as torch may use it: torch does not.

    Args:
        client: Where the keys are.
        timeout_s: How long ``get`` and ``wait`` wait where torch gives no time of its own.
    """

    def __init__(self, client: StoreClient, timeout_s: float = 60.0) -> None:
        super().__init__()
        self._client = client
        self._timeout_s = timeout_s
        self._is_closed = False

    def set(self, key: str, value: Text) -> None:
        """Write a value."""
        self._client.set(key, _as_bytes(value))

    def get(self, key: str) -> bytes:
        """Return a value, after waiting for its key."""
        self.wait([key])
        return self._client.get(key)

    def add(self, key: str, value: int) -> int:
        """Add to a number and return the sum."""
        return self._client.add(key, value)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
        return self._client.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are there.

        Raises:
            StoreTimeout: They are not there in time.
            StoreClosed: This store was closed.
        """
        seconds = self._timeout_s if timeout is None else timeout.total_seconds()
        deadline = time.monotonic() + seconds
        while True:
            if self._is_closed:
                raise StoreClosed(f"wait({', '.join(keys)}): the store was closed")
            left = deadline - time.monotonic()
            try:
                self._client.wait(keys, max(0.0, min(left, _SLICE_S)))
                return
            except StoreTimeout:
                if left <= _SLICE_S:
                    raise StoreTimeout(_late(keys, seconds)) from None

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Write a value if the present one is as expected; return the value afterwards."""
        expected, desired = _as_bytes(expected_value), _as_bytes(desired_value)
        return self._client.compare_set(key, expected, desired)

    def delete_key(self, key: str) -> bool:
        """Remove a key and return whether it was there."""
        return self._client.delete(key)

    deleteKey = delete_key  # noqa: N815 - the name by which torch's own code asks for it

    def close(self) -> None:
        """Let every wait of this store fail within half a second."""
        self._is_closed = True


def _as_bytes(value: Text) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _late(keys: Sequence[str], seconds: float) -> str:
    return f"wait({', '.join(keys)}): not there after {seconds:g} s"
