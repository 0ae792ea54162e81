"""What lies under a path: its file system; and whether a port is free."""

from __future__ import annotations

import socket
from pathlib import Path


def filesystem_of(path: Path, table: Path = Path("/proc/mounts")) -> str | None:
    """The type of the file system that holds ``path``, such as ``nfs4``; ``None`` if unknown."""
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    resolved = path.resolve()
    best: tuple[int, str] | None = None
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if resolved.is_relative_to(point):
            depth = len(point.parts)
            if best is None or depth >= best[0]:
                best = (depth, fields[2])
    return best[1] if best else None


def port_is_free(port: int) -> bool:
    """Whether a server of this user could listen on ``port``."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
