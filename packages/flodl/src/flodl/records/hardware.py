"""What a run runs on, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from platform import machine

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU."""

    device: int | None
    """Physical index."""
    name: str
    vram_total: float | None
    """Bytes."""


def hardware_text(
    cards: Sequence[Card], *, threads: float | None = None, ram_total: float | None = None
) -> str:
    """Return this host's processor and the GPUs of the run; equal GPUs are counted.

    Args:
        cards: The GPUs.
        threads: Threads that may be used; ``None`` leaves the processor out.
        ram_total: Bytes.

    Examples:
        >>> card = Card(0, "NVIDIA H200", 141 * 2**30)
        >>> hardware_text([card, card])
        '2x NVIDIA H200 (141GB)'
    """
    parts = []
    if threads is not None:
        memory = "" if ram_total is None else f", {_gb(ram_total)}"
        parts.append(f"{processor_name()} ({threads:g} threads{memory})")
    counts = Counter((card.name, card.vram_total) for card in cards)
    texts = [
        f"{f'{count}x ' if count > 1 else ''}{name}{'' if total is None else f' ({_gb(total)})'}"
        for (name, total), count in counts.items()
    ]
    if texts:
        parts.append(" + ".join(texts))
    return " | ".join(parts)


@cache
def processor_name() -> str:
    """Return the name of this host's processor, or its architecture where that is all there is."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, machine())


def _gb(size: float) -> str:
    return f"{size / _GIB:.0f}GB"
