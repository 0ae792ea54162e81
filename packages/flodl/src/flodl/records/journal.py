"""The records of a run on disk: one JSON line each, in a tree of files that is the record tree."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from flodl.core.errors import ConfigError
from flodl.core.log import warn_once
from flodl.core.paths import check_record_path
from flodl.records.errors import RecordLogError
from flodl.records.record import Record

DEFAULT_NODE_BYTES = 32 << 20
LEAST_NODE_BYTES = 4096
MAX_WAITING = 10_000
MAX_OPEN = 256
META = "meta.json"
_PAUSE_S = 0.25
_RETRY_S = 30.0
_logger = logging.getLogger(__name__)

ErrorFn = Callable[[str, str], object]


class RecordLog:
    """Writes records to files whose paths are the record paths, in a thread of its own.

    ``root/host-b/rank1`` is ``<folder>/root/host-b/rank1.jsonl``. Each node keeps its newest
    lines within its cap, in two files: the open one, and the full one before it with ``.1``.
    Neither a slow nor a full disk holds up whoever publishes.

    Args:
        folder: Where the tree begins; made if missing.
        max_bytes: Cap per node; 0 means 32 MiB.
        on_error: Called with a record path and a text when a node's file cannot be written.

    Raises:
        ConfigError: ``max_bytes`` is negative, or below 4096 and not 0.
        RecordLogError: The folder cannot be written.
    """

    def __init__(
        self, folder: str | Path, max_bytes: int = 0, *, on_error: ErrorFn | None = None
    ) -> None:
        self.folder = Path(folder)
        self.max_bytes = checked_cap(max_bytes)
        self.dropped = 0
        """Lines that were lost because the disk did not keep up, or failed."""
        self._on_error = on_error
        self._files = SegmentTree(_made(self.folder), self.max_bytes)
        self._waiting: deque[Record] = deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._retry_at: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="flodl-record-log", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines that are not written yet."""
        return len(self._waiting)

    def offer(self, records: Sequence[Record]) -> None:
        """Queue records to be written; the oldest are dropped when too many wait."""
        self._waiting.extend(records)
        while len(self._waiting) > MAX_WAITING:
            with contextlib.suppress(IndexError):  # the writer was faster
                self._waiting.popleft()
                self.dropped += 1
        self._wake.set()

    def close(self, timeout: float = 10.0) -> None:
        """Write what waits, make it safe on the disk, and end. Idempotent."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            # a pause gathers what belongs into one write
            if not self._is_closing:
                time.sleep(_PAUSE_S)
            self._wake.clear()
            self._write_waiting()
            if self._is_closing and not self._waiting:
                self._files.close()
                return

    def _write_waiting(self) -> None:
        by_path: dict[str, list[bytes]] = {}
        while self._waiting:
            record = self._waiting.popleft()
            if record.path is None:
                self._attempt(META, partial(self._files.replace_meta, record.line))
            else:
                by_path.setdefault(record.path, []).append(record.line)
        for path, lines in by_path.items():
            if not self._attempt(path, partial(self._files.append, path, lines)):
                self.dropped += len(lines)

    def _attempt(self, path: str, write: Callable[[], object]) -> bool:
        if time.monotonic() < self._retry_at.get(path, 0.0):
            return False
        try:
            write()
        except (OSError, RecordLogError) as error:
            is_new = path not in self._retry_at
            self._retry_at[path] = time.monotonic() + _RETRY_S
            if is_new:
                self._complain(path, f"the record log cannot be written: {error}")
            return False
        self._retry_at.pop(path, None)
        return True

    def _complain(self, path: str, text: str) -> None:
        warn_once(_logger, "%s: %s; training goes on", path, text)
        if self._on_error is not None:
            self._on_error("root" if path == META else path, text)


class SegmentFile:
    """An append-only file of bounded size, with the one that was full before it beside it.

    A line that a crash has torn is closed when the file is opened again.

    Args:
        file: The newer of the two; the older has ``.1`` at its end.
        max_bytes: Cap over both.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, file: Path, max_bytes: int) -> None:
        self._file = file
        self._half = max_bytes // 2
        self._descriptor, self._size = _opened(file)

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines; the files are exchanged before the line that would exceed the cap.

        Raises:
            OSError: The disk refuses.
        """
        batch: list[bytes] = []
        size = self._size
        for line in lines:
            length = len(line) + 1
            if length > self._half:
                continue  # larger than a whole segment: keeping it would break the cap
            if size + length > self._half:
                self._write(batch)
                self._exchange()
                batch, size = [], self._size
            batch.append(line)
            size += length
        self._write(batch)

    def close(self, *, safe: bool = False) -> None:
        """Close the file.

        Args:
            safe: Whether to wait until it is on the disk.
        """
        try:
            if safe:
                with contextlib.suppress(OSError):  # a full or lost disk, which was told already
                    os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def _write(self, batch: Sequence[bytes]) -> None:
        text = b"".join(line + b"\n" for line in batch)
        while text:
            done = os.write(self._descriptor, text)
            self._size += done
            text = text[done:]

    def _exchange(self) -> None:
        os.close(self._descriptor)
        self._file.replace(older_segment(self._file))
        self._descriptor, self._size = _opened(self._file)


class SegmentTree:
    """The files of all nodes under one folder, a limited number of them open.

    Args:
        folder: Resolved folder that nothing leaves.
        max_bytes: Cap per node.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._open: OrderedDict[str, SegmentFile] = OrderedDict()

    def append(self, path: str, lines: Sequence[bytes]) -> None:
        """Append lines to a node's file.

        Raises:
            OSError: The disk refuses.
            RecordLogError: A part of the path is a link.
        """
        file = self._open.get(path)
        if file is None:
            while len(self._open) >= MAX_OPEN:
                self._open.popitem(last=False)[1].close()
            place = segment_file(self._folder, path, make=True)
            file = self._open[path] = SegmentFile(place, self._max_bytes)
        self._open.move_to_end(path)
        file.append(lines)

    def replace_meta(self, line: bytes) -> None:
        """Write the meta record, whole or not at all.

        Raises:
            OSError: The disk refuses.
        """
        target = self._folder / META
        unfinished = target.with_suffix(".json.tmp")
        unfinished.write_bytes(line + b"\n")
        unfinished.replace(target)

    def close(self) -> None:
        """Make everything safe on the disk."""
        while self._open:
            self._open.popitem()[1].close(safe=True)


def segment_file(folder: Path, path: str, *, make: bool = False) -> Path:
    """Return the file of a record path under a resolved folder.

    Args:
        folder: The log's folder.
        path: The record path.
        make: Whether to make the folders on the way.

    Raises:
        RecordPathError: ``path`` is none.
        RecordLogError: A part of the way is a link, which could lead out of the folder.
    """
    *above, last = check_record_path(path).split("/")
    place = folder
    for part in above:
        place /= part
        if place.is_symlink():
            raise RecordLogError(f"{place} is a link; record logs follow none")
        if make:
            place.mkdir(exist_ok=True)
    # appended, not substituted: 10.0.0.5 and 10.0.0.6 are two files
    return place / f"{last}.jsonl"


def older_segment(file: Path) -> Path:
    """Return the file that the older lines of a node are in."""
    return file.with_name(f"{file.name}.1")


def checked_cap(max_bytes: int) -> int:
    """Return the cap that ``max_bytes`` stands for.

    Raises:
        ConfigError: It is negative, or too small to hold records.
    """
    if max_bytes == 0:
        return DEFAULT_NODE_BYTES
    if max_bytes < LEAST_NODE_BYTES:
        raise ConfigError(
            f"record_log(max_bytes={max_bytes}): must be 0 (32 MiB per node) or at least "
            f"{LEAST_NODE_BYTES}"
        )
    return max_bytes


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RecordLogError(
            f"record_log({str(folder)!r}): the folder cannot be written: {error.strerror}",
            hint="choose a folder that exists or can be made, on a disk with room",
        ) from error
    return folder.resolve()


def _opened(file: Path) -> tuple[int, int]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o644)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        # the last line was torn by a crash; readers skip it
        size += os.write(descriptor, b"\n")
    return descriptor, size
