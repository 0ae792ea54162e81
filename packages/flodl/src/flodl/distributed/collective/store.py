"""The store over which ranks form their groups: what a client does, and the table behind it.

No torch here: the controller keeps a table and never loads torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar, final

from flodl.distributed.collective.errors import CollectiveError, StoreTimeout

__all__ = ["MemoryStore", "StoreClient", "StoreTable"]

Token = TypeVar("Token", bound=Hashable)


class StoreClient(Protocol):
    """Operations on a store that may live in another process; any thread may call them."""

    def set(self, key: str, value: bytes) -> None:
        """Write a value, over what is there."""

    def get(self, key: str) -> bytes:
        """Return the value of a key that is known to be there."""

    def add(self, key: str, amount: int) -> int:
        """Add to a decimal number, which starts at 0, and return the sum."""

    def wait(self, keys: Sequence[str], timeout_s: float) -> None:
        """Return once all keys are there.

        Raises:
            StoreTimeout: They are not there in time.
            StoreClosed: The link to the store is gone.
        """

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write ``desired`` if the value is ``expected``, and return the value afterwards.

        An absent key is written if ``expected`` is empty; otherwise ``expected`` is returned and
        nothing written.
        """

    def delete(self, key: str) -> bool:
        """Remove a key and return whether it was there."""


@final
class StoreTable(Generic[Token]):
    """Keys, values and those who wait for keys: plain state without input, output or clock.

    Whoever serves it gives each waiting request a token of its choice, parks the token, and
    answers the tokens that `released` hands out after a write.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._missing: dict[Token, set[str]] = {}
        self._released: list[Token] = []

    def set(self, key: str, value: bytes) -> None:
        """Write a value, over what is there."""
        self._values[key] = bytes(value)
        for token, missing in list(self._missing.items()):
            missing.discard(key)
            if not missing:
                del self._missing[token]
                self._released.append(token)

    def get(self, key: str) -> bytes | None:
        """Return a value, or ``None``."""
        return self._values.get(key)

    def add(self, key: str, amount: int) -> int:
        """Add to a decimal number, which starts at 0, and return the sum.

        Raises:
            CollectiveError: The value is not a number.
        """
        text = self._values.get(key, b"0")
        try:
            total = int(text) + amount
        except ValueError:
            raise CollectiveError(f"add({key!r}): the value is {text!r}, not a number") from None
        self.set(key, str(total).encode())
        return total

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return all(key in self._values for key in keys)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write ``desired`` if the value is ``expected``, and return the value afterwards."""
        value = self._values.get(key)
        if value is None and expected:
            return bytes(expected)
        if value is None or value == expected:
            self.set(key, desired)
        return self._values[key]

    def delete(self, key: str) -> bool:
        """Remove a key and return whether it was there."""
        return self._values.pop(key, None) is not None

    def forget(self, prefix: str) -> int:
        """Remove all keys that begin so, such as those of an old generation; return how many."""
        keys = [key for key in self._values if key.startswith(prefix)]
        for key in keys:
            del self._values[key]
        return len(keys)

    def park(self, token: Token, keys: Sequence[str]) -> bool:
        """Return whether all keys are there; if not, keep the token until they are."""
        missing = {key for key in keys if key not in self._values}
        if missing:
            self._missing[token] = missing
        return not missing

    def released(self) -> list[Token]:
        """Return the tokens whose keys have all come, each once, in that order."""
        released, self._released = self._released, []
        return released

    def drop(self, token: Token) -> bool:
        """Stop waiting for a token's keys; return whether it was waiting."""
        return self._missing.pop(token, None) is not None

    def __len__(self) -> int:
        return len(self._values)


@final
class MemoryStore(StoreClient):
    """A store within one process, for ranks that are threads."""

    def __init__(self) -> None:
        self._table: StoreTable[int] = StoreTable()
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        """See `StoreClient`."""
        with self._changed:
            self._table.set(key, value)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        """See `StoreClient`."""
        with self._changed:
            value = self._table.get(key)
        if value is None:
            raise StoreTimeout(f"get({key!r}): no such key; wait for it first")
        return value

    def add(self, key: str, amount: int) -> int:
        """See `StoreClient`."""
        with self._changed:
            total = self._table.add(key, amount)
            self._changed.notify_all()
        return total

    def wait(self, keys: Sequence[str], timeout_s: float) -> None:
        """See `StoreClient`."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._table.check(keys):
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    if self._table.check(keys):
                        return
                    raise StoreTimeout(f"wait({', '.join(keys)}): not there after {timeout_s:g} s")

    def check(self, keys: Sequence[str]) -> bool:
        """See `StoreClient`."""
        with self._changed:
            return self._table.check(keys)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """See `StoreClient`."""
        with self._changed:
            value = self._table.compare_set(key, expected, desired)
            self._changed.notify_all()
        return value

    def delete(self, key: str) -> bool:
        """See `StoreClient`."""
        with self._changed:
            return self._table.delete(key)

    def forget(self, prefix: str) -> int:
        """Remove all keys that begin so, and return how many."""
        with self._changed:
            return self._table.forget(prefix)
