"""What a timeline keeps on the disk while it runs, for when its process dies."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flodl.core.log import warn_once
from flodl.core.paths import segment_of
from flodl.records.journal import SegmentFile
from flodl.records.record import encode_json

MAX_BYTES = 256 << 20
KEPT_RUNS = 20
_logger = logging.getLogger(__name__)


class TimelineSpill:
    """A bounded file of JSON lines beside a note about which process wrote them.

    Args:
        folder: Folder of this run; made.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        note = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time()}
        (folder / "meta.json").write_bytes(encode_json(note) + b"\n")
        self._file = SegmentFile(folder / "timeline.jsonl", MAX_BYTES)

    @classmethod
    def opened(cls, label: str, home: Path | None = None) -> TimelineSpill | None:
        """Return the spill of a new run, ``None`` where the disk does not take it; told once.

        Args:
            label: Name of the run.
            home: Folder of all runs; ``None`` for ``~/.flodl/telemetry``.
        """
        base = Path.home() / ".flodl/telemetry" if home is None else home
        stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S.%f")
        try:
            _forget_old(base)
            return cls(base / f"{segment_of(label)}-{stamp}-{os.getpid()}")
        except OSError as error:
            warn_once(_logger, "the timeline is not kept on the disk: %s", error)
            return None

    def write(self, part: Mapping[str, Any]) -> None:
        """Append one part of the timeline; a disk that refuses is told once."""
        try:
            self._file.append([encode_json(part)])
        except OSError as error:
            warn_once(_logger, "the timeline is not kept on the disk: %s", error)

    def close(self) -> None:
        """End the file."""
        self._file.close()


def _forget_old(base: Path) -> None:
    """Remove all but the newest runs, so that what is kept stays bounded."""
    if not base.is_dir():
        return
    runs = sorted(
        (entry for entry in base.iterdir() if (entry / "meta.json").is_file()),
        key=lambda entry: entry.stat().st_mtime,
    )
    for old in runs[: max(0, len(runs) - KEPT_RUNS + 1)]:
        shutil.rmtree(old, ignore_errors=True)
