"""The terminal, which may stand still while the daemon must not."""

from __future__ import annotations

import queue
import threading
from typing import BinaryIO

_MOST_WAITING = 20_000
_PARTING_S = 1.0


class Console:
    """Writes lines in a thread of its own; lines that nobody reads for long are dropped.

    Args:
        out: Standard output.
        err: Standard error.
    """

    def __init__(self, out: BinaryIO, err: BinaryIO) -> None:
        self._lines: queue.Queue[tuple[BinaryIO, bytes] | None] = queue.Queue(_MOST_WAITING)
        self._out, self._err = out, err
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="flodl-console", daemon=True)
        self._thread.start()

    def out(self, line: bytes) -> None:
        """Write a line to standard output, soon."""
        self._put(self._out, line)

    def err(self, line: bytes) -> None:
        """Write a line to standard error, soon."""
        self._put(self._err, line)

    def close(self) -> None:
        """Write what waits, unless the terminal stands still."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(_PARTING_S)

    def _put(self, stream: BinaryIO, line: bytes) -> None:
        try:
            self._lines.put_nowait((stream, line))
        except queue.Full:
            self.dropped += 1

    def _run(self) -> None:
        while (item := self._lines.get()) is not None:
            stream, line = item
            try:
                stream.write(line)
                stream.flush()
            except OSError:  # the reader has gone; the log files go on
                continue
