"""Whole files or none: written beside their place, then moved into it."""

from __future__ import annotations

import os
from pathlib import Path

from flodl.monitor.errors import MonitorExportError


def write_file(path: str | Path, content: bytes) -> Path:
    """Write a file, making its folders; a failure leaves what was there before.

    Raises:
        MonitorExportError: It cannot be written.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise MonitorExportError(
            f"{str(path)!r} cannot be written: {error.strerror or error}",
            hint="choose a place that can be written, on a disk with room",
        ) from error
    return target
