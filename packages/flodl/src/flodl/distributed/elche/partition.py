"""Whole batches for unequal ranks: every sum is exact, ties go to the lower rank."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flodl.core.errors import ConfigError


def round_half_up(value: float) -> int:
    """Return the nearest whole number, the higher one of two."""
    return math.floor(value + 0.5)


def equal_split(total: int, world: int) -> list[int]:
    """Return ``total`` in ``world`` parts as equal as can be, the remainder to the first.

    Raises:
        ConfigError: There is no rank, or less than nothing to split.
    """
    if world < 1 or total < 0:
        raise ConfigError(f"equal split of {total} over {world} ranks: expected ranks and work")
    size, rest = divmod(total, world)
    return [size + (rank < rest) for rank in range(world)]


def ratio_split(total: int, ratios: Sequence[float]) -> list[int]:
    """Return ``total`` in parts of the given ratio: floors, the remainder to the largest.

    Raises:
        ConfigError: A ratio is not a positive number, or there is none.
    """
    if not ratios or not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios):
        raise ConfigError(f"ratios={list(ratios)}: expected a positive number for each rank")
    whole = math.fsum(ratios)
    # The tolerance keeps 900 * (3 / 6) at 450 where the quotient was rounded down.
    sizes = [math.floor(total * ratio / whole + 1e-9) for ratio in ratios]
    sizes[largest(sizes)] += total - sum(sizes)
    return sizes


def largest(counts: Sequence[int]) -> int:
    """Return the rank with the largest count, the first of several."""
    return max(range(len(counts)), key=lambda rank: (counts[rank], -rank))


def cap_total(counts: Sequence[int], most: int) -> tuple[list[int], bool]:
    """Return counts scaled down to a sum of at most ``most``, and whether that was needed.

    Each keeps at least 1, and what scaling left over goes to the largest count.
    """
    total = sum(counts)
    if total <= most:
        return list(counts), False
    scaled = [max(1, count * most // total) for count in counts]
    rest = most - sum(scaled)
    if rest > 0:
        scaled[largest(scaled)] += rest
    while rest < 0 and max(scaled) > 1:
        highest = largest(scaled)
        taken = min(-rest, scaled[highest] - 1)
        scaled[highest] -= taken
        rest += taken
    return scaled, True


def clamp_total(counts: Sequence[int], most: int) -> list[int]:
    """Return counts apportioned by largest remainders to a sum of exactly ``most``.

    A sum below ``most`` stays as it is. Every rank keeps at least 1 where ``most`` allows it;
    otherwise those with the smallest counts get none.

    Raises:
        ConfigError: ``most`` is negative.
    """
    if most < 0:
        raise ConfigError(f"clamp to {most} batches: expected 0 or more")
    total = sum(counts)
    if most >= total:
        return list(counts)
    clamped = [count * most // total for count in counts]
    remainders = [count * most % total for count in counts]
    order = sorted(range(len(counts)), key=lambda rank: (-remainders[rank], -counts[rank], rank))
    for rank in order[: most - sum(clamped)]:
        clamped[rank] += 1
    if most >= len(counts):
        _raise_zeros(clamped)
    return clamped


def _raise_zeros(counts: list[int]) -> None:
    for rank, count in enumerate(counts):
        if count == 0:
            counts[largest(counts)] -= 1
            counts[rank] = 1
