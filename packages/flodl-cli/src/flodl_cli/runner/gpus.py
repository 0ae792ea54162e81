"""``--gpus``: which devices a command may see."""

from __future__ import annotations

from typing import NamedTuple

from flodl_cli.errors import FdlError, UsageError

_FORMS = "all, none, or a comma list of indices (0,1) or UUIDs (GPU-..., MIG-...)"


class GpuScope(NamedTuple):
    """A parsed ``--gpus`` value; ``devices`` is ``None`` for ``all`` and empty for ``none``."""

    devices: tuple[str, ...] | None


def parse_gpus(text: str) -> GpuScope:
    """Read the value of ``--gpus``.

    Raises:
        UsageError: It is empty, has an empty or repeated entry, or names no device.
    """
    word = text.strip()
    if word.lower() == "all":
        return GpuScope(None)
    if word.lower() == "none":
        return GpuScope(())
    devices: list[str] = []
    for part in word.split(","):
        entry = part.strip()
        if not (entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))):
            shown = repr(entry) if entry else "an empty entry"
            raise UsageError(f"--gpus {text!r}: {shown} is no GPU", hint=f"it takes {_FORMS}")
        device = str(int(entry)) if entry.isdecimal() else entry
        if device in devices:
            raise UsageError(f"--gpus {text!r}: {device} is listed twice", hint="keep one of them")
        devices.append(device)
    return GpuScope(tuple(devices))


def device_masks(scope: GpuScope) -> dict[str, str]:
    """The variables that limit a child to ``scope``, for NVIDIA and AMD runtimes alike.

    Raises:
        FdlError: ``all`` is asked for on a machine where no GPU is found.
    """
    if scope.devices is not None:
        mask = ",".join(scope.devices)
        return {"CUDA_VISIBLE_DEVICES": mask, "HIP_VISIBLE_DEVICES": mask}
    # Few calls ask for it, and it starts the driver's own tool.
    from flodl_sys.gpu import Vendor, scan_gpus

    scan = scan_gpus()
    if not scan.gpus:
        reasons = "".join(f"; {note.message}" for note in scan.notes)
        raise FdlError(
            f"--gpus all: no GPU is found on this machine{reasons}",
            hint="leave --gpus out to run on the CPU",
        )
    return {
        variable: ",".join(str(gpu.index) for gpu in scan.gpus if gpu.vendor is vendor)
        for variable, vendor in (
            ("CUDA_VISIBLE_DEVICES", Vendor.NVIDIA),
            ("HIP_VISIBLE_DEVICES", Vendor.AMD),
        )
    }
