"""Which of the physical GPUs this process is allowed to see, by the runtimes' own variables."""

from collections.abc import Mapping

from flodl_sys.gpu.model import GpuInfo, GpuNote, GpuScan, NoteKind, Vendor

CUDA_MASK = "CUDA_VISIBLE_DEVICES"
HIP_MASK = "HIP_VISIBLE_DEVICES"
ROCR_MASK = "ROCR_VISIBLE_DEVICES"


def visible_gpus(scan: GpuScan, environ: Mapping[str, str]) -> GpuScan:
    """Applies the visibility variables as the runtimes do, and keeps the scan's notes.

    A mask lists indices or UUIDs (a beginning is enough) in the order wanted; an empty one hides
    all, and the first entry that names nothing ends the list. HIP reads CUDA's variable where its
    own is not set. Indices mean the driver's order (``CUDA_DEVICE_ORDER=PCI_BUS_ID``).
    """
    nvidia = GpuScan(tuple(gpu for gpu in scan.gpus if gpu.vendor is Vendor.NVIDIA))
    amd = GpuScan(tuple(gpu for gpu in scan.gpus if gpu.vendor is Vendor.AMD))
    amd = _masked(amd, environ, ROCR_MASK)
    amd = _masked(amd, environ, HIP_MASK if HIP_MASK in environ else CUDA_MASK)
    return GpuScan(notes=scan.notes) + _masked(nvidia, environ, CUDA_MASK) + amd


def _masked(scan: GpuScan, environ: Mapping[str, str], variable: str) -> GpuScan:
    mask = environ.get(variable)
    if mask is None or not scan.gpus:
        return scan
    chosen: list[GpuInfo] = []
    for entry in (part.strip() for part in mask.split(",")):
        gpu = _named_by(entry, scan.gpus)
        if gpu is None:
            note = _bad_entry(variable, mask, entry, scan.gpus)
            return GpuScan(tuple(chosen), scan.notes + note)
        chosen.append(gpu)
    return GpuScan(tuple(chosen), scan.notes)


def _named_by(entry: str, gpus: tuple[GpuInfo, ...]) -> GpuInfo | None:
    if entry.isdecimal():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        return _parent_of_slice(entry, gpus)
    matches = [gpu for gpu in gpus if entry and gpu.uuid is not None and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _parent_of_slice(entry: str, gpus: tuple[GpuInfo, ...]) -> GpuInfo | None:
    # MIG-GPU-<uuid>/<instance>/<instance> names its GPU; the newer MIG-<uuid> does not
    parent = entry.removeprefix("MIG-").partition("/")[0]
    matches = [gpu for gpu in gpus if gpu.uuid == parent]
    return matches[0] if matches else (gpus[0] if len(gpus) == 1 else None)


def _bad_entry(
    variable: str, mask: str, entry: str, gpus: tuple[GpuInfo, ...]
) -> tuple[GpuNote, ...]:
    if entry in {"", "-1", "NoDevFiles", "void", "none"}:
        return ()  # the usual ways to hide all GPUs on purpose
    message = (
        f"{variable}={mask}: {entry!r} names none of the {len(gpus)} GPUs "
        f"(indices 0 to {len(gpus) - 1}), so the list ends before it"
    )
    return (GpuNote(gpus[0].vendor, NoteKind.BAD_MASK, message),)
