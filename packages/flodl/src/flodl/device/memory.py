"""Memory of a GPU, and telling when it ran out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryInfo:
    """Bytes of one GPU: the driver's view, and what torch's allocator holds of it."""

    free: int
    used: int
    """By all processes."""
    total: int
    reserved: int
    """Held by torch in this process, in use or cached."""
    allocated: int
    """Held by tensors of this process."""


def gpu_memory_info(device: torch.device | int | None = None) -> MemoryInfo:
    """Return how the memory of a GPU is used now; by default of the current one.

    Raises:
        RuntimeError: There is no GPU.
    """
    free, total = torch.cuda.mem_get_info(device)
    return MemoryInfo(
        free=free,
        used=total - free,
        total=total,
        reserved=torch.cuda.memory_reserved(device),
        allocated=torch.cuda.memory_allocated(device),
    )


def gpu_active_bytes(device: torch.device | int | None = None) -> int:
    """Return the bytes that tensors hold on a GPU."""
    return torch.cuda.memory_allocated(device)


def gpu_peak_active_bytes(device: torch.device | int | None = None) -> int:
    """Return the most bytes that tensors held on a GPU since the last reset of the peaks."""
    return torch.cuda.max_memory_allocated(device)


def gpu_peak_reserved_bytes(device: torch.device | int | None = None) -> int:
    """Return the most bytes that torch's allocator held since the last reset of the peaks."""
    return torch.cuda.max_memory_reserved(device)


def gpu_reset_peak_stats(device: torch.device | int | None = None) -> None:
    """Let both peaks start again from what is held now."""
    torch.cuda.reset_peak_memory_stats(device)


def gpu_empty_cache() -> None:
    """Give cached memory back to the driver."""
    torch.cuda.empty_cache()


def pool_bytes(pool: Any) -> int:
    """Return the bytes that a memory pool of graphs holds."""
    return sum(
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment.get("segment_pool_id", ())) == tuple(pool)
    )


def is_gpu_oom(error: BaseException) -> bool:
    """Return whether an error, or what it was raised from, means that GPU memory ran out."""
    seen: BaseException | None = error
    visited: set[int] = set()
    while seen is not None and id(seen) not in visited:
        visited.add(id(seen))
        if isinstance(seen, torch.OutOfMemoryError):
            return True
        text = str(seen)
        if isinstance(seen, RuntimeError) and (
            "CUDA out of memory" in text
            or "CUDA error: out of memory" in text
            or "ALLOC_FAILED" in text
        ):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
