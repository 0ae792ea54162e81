"""Looks for GPUs of both vendors; loads no GPU runtime and starts none."""

import logging
import os
from pathlib import Path

from flodl_sys import names
from flodl_sys.errors import GpuDetectionError
from flodl_sys.gpu.amd import scan_amd
from flodl_sys.gpu.model import GpuInfo, GpuScan
from flodl_sys.gpu.nvidia import scan_nvidia
from flodl_sys.gpu.visibility import visible_gpus

_log = logging.getLogger(__name__)


def scan_gpus(root: Path | None = None) -> GpuScan:
    """Returns all physical GPUs, NVIDIA's first, with notes on what could not be found out.

    Args:
        root: Folder that stands for ``/``; ``FLODL_HW_ROOT`` by default, else ``/``.
    """
    root = Path(names.HW_ROOT.get() or "/") if root is None else root
    return scan_nvidia(root) + scan_amd(root)


def detect_gpus(*, strict: bool = False) -> list[GpuInfo]:
    """Returns the GPUs that this process may use: the visibility variables are applied.

    What could not be found out is logged at warning level, or raised when ``strict``.

    Raises:
        GpuDetectionError: ``strict``, and a tool, a tree or a mask is broken.
    """
    return _settle(visible_gpus(scan_gpus(), os.environ), strict=strict)


def detect_gpus_physical(*, strict: bool = False) -> list[GpuInfo]:
    """Returns all GPUs of the machine, hidden ones too; otherwise as `detect_gpus`."""
    return _settle(scan_gpus(), strict=strict)


def _settle(scan: GpuScan, *, strict: bool) -> list[GpuInfo]:
    if strict and scan.notes:
        raise GpuDetectionError(
            "GPU detection is not reliable here: " + "; ".join(n.message for n in scan.notes),
            hint="repair what it names, or detect without strict to go on with what was found",
        )
    for note in scan.notes:
        _log.warning("GPU detection (%s): %s", note.vendor, note.message)
    return list(scan.gpus)
