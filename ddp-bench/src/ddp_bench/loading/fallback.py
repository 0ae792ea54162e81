"""What a loader does on a GPU without room for its set: how soon it streams, and what is lost."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import torch

from flodl.data import DataLoader, TensorDataSet
from flodl.device import gpu_empty_cache, gpu_memory_info

CASE = "full GPU"
ROOM_BYTES = 128 << 20
ROWS, ROW_FLOATS, BATCH_SIZE = 8192, 1 << 13, 64  # 256 MiB


@dataclass(frozen=True, kw_only=True, slots=True)
class Fallback:
    """How a loader went on by streaming."""

    fell_back: bool
    first_batch_s: float
    """Seconds from building the loader to its first batch."""
    lost: int
    """Samples that did not arrive exactly once."""


def measure(device: torch.device) -> Fallback:
    """Let torch have half the memory that the set needs, and take an epoch of it."""
    numbers = torch.arange(ROWS)
    values = numbers.float().unsqueeze(1).expand(-1, ROW_FLOATS).contiguous()
    data = TensorDataSet(x=values, y=numbers)
    gpu_empty_cache()
    memory = gpu_memory_info(device)
    limit = (memory.reserved + ROOM_BYTES) / memory.total
    torch.cuda.set_per_process_memory_fraction(limit, device)
    try:
        return _taken(data, device)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        gpu_empty_cache()


def _taken(data: TensorDataSet, device: torch.device) -> Fallback:
    begun = time.perf_counter()
    seen: Counter[int] = Counter()
    with DataLoader(data, batch_size=BATCH_SIZE, device=device, drop_last=False) as loader:
        fell_back = not loader.is_resident
        first = 0.0
        for batch in loader.epoch(0):
            rows = batch["y"].tolist()
            first = first or time.perf_counter() - begun
            if batch["x"][:, 0].tolist() == rows:
                seen.update(rows)
            del batch
    return Fallback(
        fell_back=fell_back,
        first_batch_s=first,
        lost=sum(seen[row] != 1 for row in range(ROWS)),
    )
