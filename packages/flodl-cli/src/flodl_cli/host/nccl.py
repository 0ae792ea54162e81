"""Which NCCL a torch brings: the version that its library tells, without loading it."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda")


def find_nccl(torch: Path) -> Path | None:
    """The file with the NCCL of the torch in the folder ``torch``.

    Newer wheels have it in a package beside torch, older ones inside ``libtorch_cuda.so``. The
    folder may lead to that of a wheel by links.
    """
    torch = (torch / "lib").resolve().parent
    candidates = (
        torch.parent / "nvidia" / "nccl" / "lib" / "libnccl.so.2",
        torch / "lib" / "libnccl.so.2",
        torch / "lib" / "libtorch_cuda.so",
    )
    return next((file for file in candidates if nccl_version(file) is not None), None)


def nccl_version(library: Path) -> str | None:
    """The version that ``library`` tells, such as ``2.27.5``; ``None`` when it has no NCCL."""
    try:
        with (
            library.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            # "+cuda" tells the version text from the error messages that speak of versions too.
            found = _VERSION.search(data)
            return found[1].decode() if found else None
    except (OSError, ValueError):
        return None
