"""Whether a whole data set is held on its device: decided from measured memory, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flodl.core.units import format_bytes
from flodl.data.prefetch import usable_bytes
from flodl.data.resident import StorePlan
from flodl.device import gpu_memory_info

if TYPE_CHECKING:
    import torch

    from flodl.data.assembly import Source
    from flodl.data.config import LoaderConfig
    from flodl.device import MemoryInfo

FREE_SHARE = 0.75
HOST_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Whether the set is held on the device, and why."""

    is_resident: bool
    reason: str


def fits_gpu(need: int, memory: MemoryInfo, cap: float) -> Decision:
    """Decide for a GPU: within three quarters of what is free, and under the cap when loaded.

    Args:
        need: Bytes of the whole set.
        memory: What the device has.
        cap: Share of the device that may be used at all.
    """
    usable = usable_bytes(memory)
    used = memory.total - usable
    size = f"{format_bytes(need)} of data"
    if need > FREE_SHARE * usable:
        return Decision(
            is_resident=False,
            reason=f"{size} is more than {FREE_SHARE:.0%} of the {format_bytes(usable)} free",
        )
    if used + need > cap * memory.total:
        return Decision(
            is_resident=False,
            reason=f"{size} beside {format_bytes(used)} in use is more than {cap:.0%} of "
            f"{format_bytes(memory.total)}",
        )
    return Decision(is_resident=True, reason=f"{size} fits in {format_bytes(usable)} free")


def fits_host(need: int, available: int) -> Decision:
    """Decide for host memory: within half of what is available."""
    fits = need <= HOST_SHARE * available
    word = "fits in" if fits else "is more than"
    return Decision(
        is_resident=fits,
        reason=f"{format_bytes(need)} of data {word} {HOST_SHARE:.0%} of the "
        f"{format_bytes(available)} available",
    )


def decide(
    source: Source, length: int, config: LoaderConfig, device: torch.device, *, fixed: bool
) -> Decision:
    """Decide for one loader: as told, or else by what the set is and by measured memory.

    Args:
        source: Where the samples are.
        length: How many there are.
        config: What the user said.
        device: Where batches arrive.
        fixed: Whether every read of a sample gives the same values.
    """
    if config.streaming:
        return Decision(is_resident=False, reason="streaming=True")
    if config.resident is not None:
        return Decision(is_resident=bool(config.resident), reason=f"resident={config.resident!r}")
    if device.type == "cpu" and source.is_in_memory:
        return Decision(is_resident=True, reason="the data are tensors in memory")
    obstacle = _obstacle(source, config, device, fixed=fixed)
    if obstacle is not None:
        return Decision(is_resident=False, reason=obstacle)
    need = StorePlan(source, range(length), device).n_bytes
    if device.type == "cuda":
        return fits_gpu(need, gpu_memory_info(device), config.vram_max_usage)
    used, total = host_memory()
    return fits_host(need, total - used)


def host_memory() -> tuple[int, int]:
    """Return used and total bytes of the host, or of the container."""
    from flodl.device.host import HostProbe

    return HostProbe().memory()


def _obstacle(
    source: Source, config: LoaderConfig, device: torch.device, *, fixed: bool
) -> str | None:
    """Return why the set cannot be kept whatever the memory, or ``None``."""
    if config.worker_mode == "process":
        return 'worker_mode="process"'
    if config.collate is not None:
        return "collate forms each batch"
    if config.transform is not None and device.type != "cpu":
        return "transform works on each batch on the CPU"
    if not source.is_in_memory and not fixed:
        return "samples may differ from read to read, as the set has no is_fixed"
    if device.type not in {"cpu", "cuda"}:
        return f"the memory of {device.type} devices is not known"
    return None
