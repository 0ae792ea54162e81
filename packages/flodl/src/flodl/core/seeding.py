"""Random streams: one base seed, and from it a seed for each rank and purpose."""

from __future__ import annotations

import hashlib
import random
import sys

import torch

SEED_LIMIT = 2**63


def derive_seed(seed: int, rank: int, purpose: str) -> int:
    """Return a seed in ``[0, 2**63)`` for one rank and purpose, the same in every process.

    Rank-identical purposes (initial weights, sample order) pass ``rank=0`` on every rank;
    rank-distinct ones (dropout, augmentation) pass their own.
    """
    digest = hashlib.sha256(f"flodl/{seed}/{rank}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % SEED_LIMIT


def manual_seed(seed: int) -> None:
    """Seed torch's default generators of the CPU and of all GPUs."""
    torch.manual_seed(seed)


def gpu_manual_seed_all(seed: int) -> None:
    """Seed torch's default generators of all GPUs, and leave the CPU's alone.

    Where no GPU is in use yet, the seed waits until one is.
    """
    torch.cuda.manual_seed_all(seed)


def seed_everything(seed: int, *, deterministic: bool = False) -> None:
    """Seed torch, :mod:`random` and, where it has been imported, numpy's legacy generator.

    Args:
        seed: The seed for all of them; numpy takes its lower 32 bits.
        deterministic: Also make torch use deterministic algorithms, or raise where none exists.
    """
    manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    if deterministic:
        torch.use_deterministic_algorithms(True)
