"""The launcher's side of the control port: what it is told, kept until a launcher has it.

Notes are msgpack maps with ``op`` and a number ``n``. A launcher that attaches again says the last
number it has, and gets all that came after, so that it misses no epoch.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack

from flodl.distributed.protocol import FrameError
from flodl.distributed.protocol.values import Plain

MAX_NOTE_BYTES = 64 << 20
_KEPT = 10_000
_PASSING = frozenset({"state", "alert", "log"})
"""Notes of which old ones may be forgotten; epochs and results never are."""
Note = dict[str, Plain]


class LauncherDesk:
    """Passes notes to whichever launcher is connected; belongs to the server's loop.

    Args:
        receive: Called with each note of the launcher.
        on_lost: Called when the launcher's connection is gone.
        on_back: Called when a launcher connects.
    """

    def __init__(
        self,
        receive: Callable[[Note], None],
        *,
        on_lost: Callable[[], None],
        on_back: Callable[[], None],
    ) -> None:
        self._receive, self._on_lost, self._on_back = receive, on_lost, on_back
        self._notes: deque[tuple[int, bool, bytes]] = deque()
        self._last = 0
        self._wake = asyncio.Event()
        self._connection = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def post(self, note: Note) -> None:
        """Tell the launcher something; any thread may call it.

        Raises:
            TypeError: The note holds something else than plain values.
        """
        with self._lock:
            number = self._last + 1
            data = msgpack.packb({**note, "n": number})
            self._last = number
            self._notes.append((number, note.get("op") in _PASSING, data))
            if len(self._notes) > _KEPT and self._notes[0][1]:
                self._notes.popleft()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def serve(
        self,
        seen: int,
        get: Callable[[], Awaitable[bytes]],
        put: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Serve one connection until it breaks; a newer one ends the older.

        Args:
            seen: Number of the last note that this launcher has.
            get: Waits for a message of the connection.
            put: Sends one.
        """
        self._loop = asyncio.get_running_loop()
        self._connection += 1
        mine = self._connection
        self._on_back()
        writing = asyncio.create_task(self._write(mine, seen, put))
        try:
            while self._connection == mine:
                self._receive(_unpacked(await get()))
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            if self._connection == mine:
                self._on_lost()

    async def _write(self, mine: int, seen: int, put: Callable[[bytes], Awaitable[None]]) -> None:
        while self._connection == mine:
            self._wake.clear()
            with self._lock:
                fresh = [(number, data) for number, _, data in self._notes if number > seen]
            for number, data in fresh:
                await put(data)
                seen = number
            if seen >= self._last:
                await self._wake.wait()


def _unpacked(data: bytes) -> Note:
    try:
        note: Any = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"a note of the launcher is no msgpack: {error}") from error
    if not isinstance(note, dict) or not isinstance(note.get("op"), str):
        raise FrameError("a note of the launcher has no op")
    return note
