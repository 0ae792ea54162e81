"""What a restarted controller must know, on disk before anyone acts on it.

A process that is killed loses nothing that it has written, so the disk is made to keep it only now
and then, while the run goes on: that is for the machine's end, which ends its processes as well.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from flodl.core.errors import LaunchError

_SYNC_EVERY_S = 1.0
_CHECK_BYTES = 4
State = dict[str, Any]


class ControllerJournal:
    """A file with the newest state, replaced as a whole.

    Args:
        file: Where it is.
        clock: Monotonic seconds; for tests.
    """

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._fresh = file.with_suffix(".tmp")
        self._clock = clock
        self._synced_at = -_SYNC_EVERY_S
        self._syncing: threading.Thread | None = None
        self._sync_problem: str | None = None
        self.problem: str | None = None
        """Why the newest state could not be written or kept, ``None`` where it was."""

    def write(self, state: State) -> None:
        """Replace what is kept.

        A full disk does not end the run: it sets :attr:`problem`, and only a restart would miss it.
        """
        body = msgpack.packb(state)
        try:
            with self._fresh.open("wb", buffering=0) as stream:
                stream.write(zlib.crc32(body).to_bytes(_CHECK_BYTES, "big") + body)
                self._fresh.replace(self._file)
                self._sync_soon(stream.fileno())
            self.problem = self._sync_problem
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _sync_soon(self, fd: int) -> None:
        """Make the disk keep a file, on a thread: ranks wait for what is written, not for this."""
        now = self._clock()
        if now - self._synced_at < _SYNC_EVERY_S or (self._syncing and self._syncing.is_alive()):
            return
        self._synced_at = now
        self._syncing = threading.Thread(
            target=self._sync, args=(os.dup(fd),), name="flodl-journal", daemon=True
        )
        self._syncing.start()

    def _sync(self, fd: int) -> None:
        try:
            os.fdatasync(fd)
            self._sync_problem = None
        except OSError as error:
            self._sync_problem = error.strerror or str(error)
        finally:
            os.close(fd)

    def wait(self) -> None:
        """Wait until the disk keeps what it is being made to keep."""
        if self._syncing is not None:
            self._syncing.join()


def read_journal(file: Path) -> State | None:
    """Return the state that was kept last, ``None`` where none was.

    Raises:
        LaunchError: The file is damaged.
    """
    if not file.exists():
        return None
    data = file.read_bytes()
    body = data[_CHECK_BYTES:]
    if zlib.crc32(body) != int.from_bytes(data[:_CHECK_BYTES], "big") or not body:
        raise LaunchError(
            f"{file} is damaged, so the controller cannot go on where the one before it was",
            hint="start the run again with resume_from, from its newest checkpoint",
        )
    state: State = msgpack.unpackb(body, strict_map_key=False)
    return state
