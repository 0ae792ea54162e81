"""The devices of a run: what is said about them, and what is offered to the controller."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from flodl.core.errors import ConfigError
from flodl.distributed.protocol.values import Device
from flodl_sys.gpu import GpuInfo

_GIB = 1 << 30
_MAKERS = ("NVIDIA GeForce ", "NVIDIA ", "AMD Radeon ", "AMD ")


def hardware_line(gpus: Sequence[GpuInfo]) -> str:
    """Return the line that every run begins with."""
    if not gpus:
        return "ddp: no CUDA available | CPU mode"
    described = " | ".join(map(_described, gpus))
    if len(gpus) == 1:
        return f"ddp: 1 GPU | {described} | single-device mode"
    kind = " (heterogeneous)" if len({gpu.name for gpu in gpus}) > 1 else ""
    return f"ddp: {len(gpus)} GPUs{kind} | {described}"


def cpu_devices(count: int) -> tuple[Device, ...]:
    """Return ``count`` offers of this machine's CPU."""
    name = _cpu_name()
    return tuple(Device(uuid="cpu", name=name, index=number) for number in range(count))


def gpu_devices(gpus: Sequence[GpuInfo]) -> tuple[Device, ...]:
    """Return the offers of these GPUs."""
    return tuple(
        Device(
            uuid=gpu.uuid or f"{gpu.vendor.value}-{gpu.index}",
            name=gpu.name,
            index=gpu.index,
            arch=gpu.arch or "",
            vram=gpu.vram_bytes or 0,
        )
        for gpu in gpus
    )


def chosen_devices(
    wanted: Sequence[object] | None, ranks: int | None, gpus: Sequence[GpuInfo]
) -> tuple[Device, ...]:
    """Return what a run on this host takes: one device a rank.

    Args:
        wanted: Devices that were asked for: ``"cpu"``, ``"cuda:1"``, ``1``; ``None`` means all.
        ranks: Ranks on the CPU that were asked for.
        gpus: GPUs of the host that this process may use.

    Raises:
        ConfigError: A device is not here, or both kinds were asked for at once.
    """
    if wanted is None:
        return cpu_devices(ranks) if ranks is not None else gpu_devices(gpus) or cpu_devices(1)
    names = [str(device) for device in wanted]
    if all(name == "cpu" for name in names):
        return cpu_devices(len(names))
    picked = [_gpu(name, gpus) for name in names]
    if len({gpu.index for gpu in picked}) < len(picked):
        raise ConfigError(
            f"devices={names}: a GPU stands there twice", hint="give each rank a GPU of its own"
        )
    return gpu_devices(picked)


def _gpu(name: str, gpus: Sequence[GpuInfo]) -> GpuInfo:
    text = name.removeprefix("cuda:") if name != "cuda" else "0"
    if text.isdecimal() and int(text) < len(gpus):
        return gpus[int(text)]
    raise ConfigError(
        f"device {name!r}: this host offers "
        + (f"cuda:0 to cuda:{len(gpus) - 1}" if gpus else "no GPU")
        + ", or the CPU for all ranks",
        hint="flodl.sys.detect_gpus() lists the GPUs",
    )


def _described(gpu: GpuInfo) -> str:
    name = gpu.name
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return name if gpu.vram_bytes is None else f"{name} ({gpu.vram_bytes / _GIB:.1f} GB)"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine() or "CPU"
