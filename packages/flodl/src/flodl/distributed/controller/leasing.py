"""How much work a rank gets at a time: much while there is much, little near the end."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flodl.distributed.elche.partition import equal_split, ratio_split

LEAST_BATCHES = 4
LOOK_AHEAD = 2
"""Windows that a rank may hold in advance."""
FEW_MEMBERS = 16
"""Up to so many, a batch too many at the end of an epoch costs more than asking who is sooner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What decides the size of the next lease; all but the last in batches."""

    remaining: int
    """Free in the epoch."""
    world: int
    epoch: int
    """All of the epoch."""
    count: int | None
    """The rank's batches of a window; ``None`` while uncalibrated."""
    total: int
    """All ranks' batches of a window."""
    catch_up: int | None = None
    """What it can finish while the slowest other rank finishes what it holds."""


def lease_batches(demand: Demand) -> int:
    """Return the batches of the next lease, at most the remaining ones.

    Uncalibrated: a tenth of an equal share. Calibrated: the rank's share of what remains, at most
    two of its windows; in the tail no more than lets all ranks end together.
    """
    if demand.count is None:
        wanted = max(LEAST_BATCHES, demand.epoch // (10 * demand.world))
        is_tail = demand.remaining < wanted * demand.world
    else:
        look_ahead = LOOK_AHEAD * demand.count
        share = math.ceil(demand.remaining * demand.count / demand.total)
        wanted = max(LEAST_BATCHES, min(share, look_ahead))
        is_tail = demand.remaining < look_ahead * demand.world
    if is_tail:
        share = math.ceil(demand.remaining / demand.world)
        wanted = max(1, min(wanted, share if demand.catch_up is None else demand.catch_up))
    return min(wanted, demand.remaining)


def is_better_left(done_at: float, free: int, others: Iterable[tuple[float, float]]) -> bool:
    """Return whether another member trains all that is free before one has trained a batch of it.

    The member that would have trained one first is never refused, so that work goes on.

    Args:
        done_at: When the member that asks would have trained a batch.
        free: Batches that nobody holds, 1 or more.
        others: When each other member that takes work is done with its own, and its seconds for a
            batch.
    """
    return any(ends + free * seconds < done_at for ends, seconds in others)


def epoch_shares(
    batches: int, world: int, ratios: Sequence[float] | None, speeds: Sequence[float | None]
) -> list[int]:
    """Return the batches of each rank where an epoch is split before it starts.

    By the given ratios, else by measured speed where all are known, else equally.

    Args:
        batches: Batches of the epoch.
        world: Number of ranks.
        ratios: What the user wants.
        speeds: Milliseconds of a batch of each rank; pass nothing to split equally.
    """
    if ratios is not None:
        return ratio_split(batches, ratios)
    known = [ms for ms in speeds if ms is not None]
    if len(known) == world:
        return ratio_split(batches, [1 / ms for ms in known])
    return equal_split(batches, world)


def level_shares(batches: int, held: Sequence[int]) -> list[int]:
    """Return how many batches each rank gets so that all hold as much as possible the same.

    Args:
        batches: Batches to give out.
        held: What each rank holds already.
    """
    heap = [(count, rank) for rank, count in enumerate(held)]
    heapq.heapify(heap)
    shares = [0] * len(held)
    for _ in range(batches):
        count, rank = heap[0]
        shares[rank] += 1
        heapq.heapreplace(heap, (count + 1, rank))
    return shares


@dataclass(kw_only=True, slots=True)
class Horizon:
    """When each rank will have trained what it holds, if all goes on as predicted."""

    ends: dict[str, float] = field(default_factory=dict)
    _latest: list[tuple[float, str]] = field(default_factory=list)
    """Heap by descending end; entries that no longer hold are dropped when they come up."""

    def add(self, member: str, seconds: float, now: float) -> None:
        """Count work that was leased to a member."""
        end = max(now, self.ends.get(member, now)) + seconds
        self.ends[member] = end
        heapq.heappush(self._latest, (-end, member))

    def forget(self, member: str) -> None:
        """Count nothing for a member that was lost."""
        self.ends.pop(member, None)

    def latest_other(self, member: str) -> float | None:
        """Return when the last of the other members will be done; ``None`` if there is none."""
        own: tuple[float, str] | None = None
        found = None
        while self._latest:
            end, name = self._latest[0]
            if self.ends.get(name) != -end:
                heapq.heappop(self._latest)
            elif name == member:
                own = heapq.heappop(self._latest)
            else:
                found = -end
                break
        if own is not None:
            heapq.heappush(self._latest, own)
        return found
