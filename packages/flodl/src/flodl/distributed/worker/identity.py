"""Who a rank is in its run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who a rank is in its run."""

    run: str
    uid: str
    number: int
    """The member's number, from which its own random streams are derived."""
    host: str
    device: torch.device
    run_dir: Path
    outlives_ranks: bool = False
    """Whether somebody is there after all ranks, to find what they have kept and to remove it."""
