"""AMD GPUs, from the tree of the kernel's compute driver (KFD) in sysfs."""

import os
from collections.abc import Callable
from pathlib import Path

from flodl_sys.gpu.model import GpuInfo, GpuNote, GpuScan, NoteKind, Vendor

_NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD_PCI_VENDOR = "0x1002"
_VRAM_HEAPS = {1, 2}  # frame buffer: visible to the CPU, or private


def scan_amd(root: Path, may_open: Callable[[Path], bool] | None = None) -> GpuScan:
    """Reads the KFD tree below ``root``, and explains an AMD card that it does not list.

    Args:
        root: Stands for ``/``.
        may_open: Whether this user may use a device file; asked for ``dev/kfd``.
    """
    may_open = _may_open if may_open is None else may_open
    nodes = sorted(_children(root / _NODES), key=lambda node: int(node.name))
    scan = GpuScan()
    for node in nodes:
        scan += _read_node(node, index=len(scan.gpus))
    return scan + _explain(root, scan, may_open)


def gfx_name(target_version: int) -> str:
    """Returns the name of a ``gfx_target_version``: 90010 is ``gfx90a``, 110001 is ``gfx1101``."""
    major, rest = divmod(target_version, 10_000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def _read_node(node: Path, index: int) -> GpuScan:
    try:
        facts = _properties(node / "properties")
    except PermissionError:
        return GpuScan()  # a GPU that this container was not given
    except (OSError, ValueError) as error:
        message = f"{node}/properties cannot be read: {error}; that node is left out"
        return GpuScan(notes=(GpuNote(Vendor.AMD, NoteKind.BAD_OUTPUT, message),))
    if facts.get("simd_count", 0) == 0:
        return GpuScan()  # a CPU
    target = facts.get("gfx_target_version", 0)
    arch = gfx_name(target) if target else None
    unique_id = facts.get("unique_id", 0)
    return GpuScan(
        gpus=(
            GpuInfo(
                vendor=Vendor.AMD,
                index=index,
                name=_name(node, arch, facts.get("device_id", 0)),
                uuid=f"GPU-{unique_id:016x}" if unique_id else None,
                arch=arch,
                vram_bytes=_vram_bytes(node),
            ),
        )
    )


def _name(node: Path, arch: str | None, device_id: int) -> str:
    told = _text(node / "name")
    # newer kernels give the way in which they found out, which is no name
    if told is None or told == "ip discovery":
        return f"AMD {arch or 'GPU'} ({device_id:#06x})"
    return f"AMD {told}"


def _vram_bytes(node: Path) -> int | None:
    total = 0
    for bank in _children(node / "mem_banks"):
        try:
            facts = _properties(bank / "properties")
        except (OSError, ValueError):
            return None
        if facts.get("heap_type") in _VRAM_HEAPS:
            total += facts.get("size_in_bytes", 0)
    return total or None


def _properties(file: Path) -> dict[str, int]:
    """Reads lines of ``name value``; a value that is no number raises ``ValueError``."""
    pairs = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {name: int(value) for name, value in pairs}


def _explain(root: Path, scan: GpuScan, may_open: Callable[[Path], bool]) -> GpuScan:
    kfd = root / "dev/kfd"
    cards = _amd_cards(root)
    if cards and not kfd.exists():
        kind, message = (
            NoteKind.NO_KFD,
            f"an AMD card is there ({', '.join(cards)}), but no {kfd}: the amdgpu driver runs "
            "without compute support, or the container was not given the device",
        )
    elif (cards or scan.gpus) and kfd.exists() and not may_open(kfd):
        kind, message = (
            NoteKind.NO_PERMISSION,
            f"this user may not open {kfd}; add it to the groups render and video",
        )
    else:
        return GpuScan()
    return GpuScan(notes=(GpuNote(Vendor.AMD, kind, message),))


def _amd_cards(root: Path) -> list[str]:
    cards = (root / "sys/class/drm").glob("card[0-9]*")
    return sorted(c.name for c in cards if _text(c / "device/vendor") == _AMD_PCI_VENDOR)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _children(folder: Path) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.name.isdecimal()]
    except OSError:
        return []


def _may_open(device: Path) -> bool:
    return os.access(device, os.R_OK | os.W_OK)
