"""Progress pages: one page of shared memory a rank, where it writes how far it is.

Its host daemon reads the page without asking the rank, so a rank that holds the interpreter lock,
or is stopped, is still seen for what it is.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

PAGE_BYTES = 4096

_LAYOUT = struct.Struct("@QQQQQQ24s")
"""Edition (odd while writing), time of the beat, time of the move, step, steps since the last
reduce, microseconds of a batch, phase. Native, so that each number is copied whole."""
_EDITION = struct.Struct("@Q")
_READS = 64


@dataclass(frozen=True, slots=True)
class PageReading:
    """What a page said at one moment."""

    beat_ns: int
    """Monotonic time at which the rank's control thread last ran; 0 before the first."""
    moved_ns: int
    """Monotonic time of the last step or change of phase; 0 before the first."""
    step: int
    window_steps: int
    """Steps since the last reduce."""
    batch_us: int
    """Smoothed time of a batch; 0 while unknown."""
    phase: str

    @property
    def seen_ns(self) -> int:
        """Monotonic time of the rank's last sign of life."""
        return max(self.moved_ns, self.beat_ns)


class ProgressPage:
    """One page, open for reading and writing; the rank writes, its host daemon reads.

    Args:
        fd: Descriptor of the page; it is closed once the page is mapped.
    """

    def __init__(self, fd: int) -> None:
        try:
            self._memory = mmap.mmap(fd, PAGE_BYTES)
        finally:
            os.close(fd)
        self._lock = threading.Lock()
        self._edition = 0
        self._beat = self._moved = 0
        self._facts: tuple[int, int, int, bytes] = (0, 0, 0, b"")

    def write(self, phase: str, *, step: int, window_steps: int = 0, batch_ms: float = 0.0) -> None:
        """Record a step or a change of phase, now."""
        with self._lock:
            self._facts = (step, window_steps, int(batch_ms * 1000), phase.encode())
            self._moved = time.monotonic_ns()
            self._store()

    def beat(self) -> None:
        """Record that the process runs, without having moved."""
        with self._lock:
            self._beat = time.monotonic_ns()
            self._store()

    def read(self) -> PageReading:
        """Return what the page says."""
        for _ in range(_READS):
            edition, beat, moved, step, window_steps, batch_us, phase = _LAYOUT.unpack_from(
                self._memory
            )
            if edition % 2 == 0 and _EDITION.unpack_from(self._memory)[0] == edition:
                break
        # a writer that was stopped in the middle leaves numbers that are each whole
        text = phase.rstrip(b"\0").decode("utf-8", "replace")
        return PageReading(beat, moved, step, window_steps, batch_us, text)

    def close(self) -> None:
        """Unmap the page."""
        self._memory.close()

    def _store(self) -> None:
        self._edition += 2
        _EDITION.pack_into(self._memory, 0, self._edition - 1)
        _LAYOUT.pack_into(self._memory, 0, self._edition - 1, self._beat, self._moved, *self._facts)
        _EDITION.pack_into(self._memory, 0, self._edition)


def new_page() -> int:
    """Return a descriptor of a zeroed page that no file system entry names."""
    if sys.platform == "linux":
        fd = os.memfd_create("flodl-progress", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, PAGE_BYTES)
    return fd
