"""Which part of an epoch's order belongs to whom: exact arithmetic on half-open ranges."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from flodl.core.errors import ConfigError
from flodl.data.sampler import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = tuple[Range, ...]
Uneven: TypeAlias = Literal["drop", "pad", "allow"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A part of one epoch that a loader is told to deliver.

    ``ranges`` are half-open, of positions in the order that all ranks compute for the epoch. Their
    samples are delivered in this order, so a count of samples says which positions they were.

    Raises:
        ConfigError: A negative epoch, or ranges that are empty, overlap or run backwards.
    """

    lease_id: int
    epoch: int
    ranges: Ranges

    def __post_init__(self) -> None:
        whole_number("epoch", self.epoch, least=0)
        object.__setattr__(self, "ranges", check_ranges(self.ranges))

    @property
    def size(self) -> int:
        """Number of samples."""
        return length(self.ranges)

    def head(self, samples: int) -> Ranges:
        """Return the positions of the first ``samples`` samples."""
        return cut(self.ranges, 0, samples)

    def tail(self, samples: int) -> Ranges:
        """Return the positions of all but the first ``samples`` samples."""
        return cut(self.ranges, samples, self.size)


def check_ranges(ranges: Iterable[Sequence[int]]) -> Ranges:
    """Return half-open ranges as tuples, once none is empty and none overlaps another.

    Raises:
        ConfigError: They are something else.
    """
    pairs = [tuple(pair) for pair in ranges]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(end, int) for end in pair):
            raise ConfigError(f"range {pair}: expected (start, stop)")
        if not 0 <= pair[0] < pair[1]:
            raise ConfigError(f"range [{pair[0]}, {pair[1]}): expected 0 <= start < stop")
    for (_, stop), (start, _) in itertools.pairwise(sorted(pairs)):
        if start < stop:
            raise ConfigError(f"ranges {pairs} overlap at position {start}")
    return tuple((start, stop) for start, stop in pairs)


def length(ranges: Ranges) -> int:
    """Return how many positions the ranges hold."""
    return sum(stop - start for start, stop in ranges)


def cut(ranges: Ranges, first: int, end: int) -> Ranges:
    """Return the ranges of the positions ``first`` to ``end`` of their concatenation."""
    found, offset = [], 0
    for start, stop in ranges:
        low = max(start, start + first - offset)
        high = min(stop, start + end - offset)
        if low < high:
            found.append((low, high))
        offset += stop - start
    return tuple(found)


def subtract(ranges: Ranges, taken: Iterable[Range]) -> Ranges:
    """Return what is left of ``ranges``, in ascending order, without the positions ``taken``."""
    left = sorted(ranges)
    for low, high in taken:
        parts = []
        for start, stop in left:
            parts += [(start, min(stop, low)), (max(start, high), stop)]
        left = [(start, stop) for start, stop in parts if start < stop]
    return joined(left)


def joined(ranges: Iterable[Range]) -> Ranges:
    """Return ascending ranges with neighbors that touch made one."""
    found: list[Range] = []
    for start, stop in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def select(order: Tensor, ranges: Ranges) -> Tensor:
    """Return the entries of ``order`` at the positions in ``ranges``."""
    if ranges == ((0, order.numel()),):
        return order
    return torch.cat([order[:0], *(order[start:stop] for start, stop in ranges)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """How an epoch is cut into one part for each rank, when no controller leases it.

    Parts are contiguous slices of what is pending, equal ones unless there are ``shares``.

    Raises:
        ConfigError: A rank outside the world, or shares that do not fit it.
    """

    rank: int = 0
    world_size: int = 1
    shares: tuple[float, ...] | None = None
    """Work of each rank, in any unit; ``None`` is the same for all."""
    uneven: Uneven = "drop"
    """What happens to samples that do not divide: ``"drop"`` leaves out less than a batch of each
    rank, so that all ranks take as many steps; ``"pad"`` fills up by visiting some twice;
    ``"allow"`` gives some ranks more."""

    def __post_init__(self) -> None:
        whole_number("world_size", self.world_size, least=1)
        whole_number("rank", self.rank, least=0, below=self.world_size)
        if self.uneven not in get_args(Uneven):
            raise ConfigError(f'uneven={self.uneven!r}: expected "drop", "pad" or "allow"')
        if self.shares is None:
            return
        if len(self.shares) != self.world_size or not all(
            math.isfinite(share) and share > 0 for share in self.shares
        ):
            raise ConfigError(
                f"shares={list(self.shares)}: expected a positive number for each of the "
                f"{self.world_size} ranks"
            )
        if self.uneven == "pad":
            raise ConfigError('shares with uneven="pad": unequal parts need no padding')

    def ranges(
        self, pending: Ranges, *, batch_size: int, drop_last: bool, rank: int | None = None
    ) -> Ranges:
        """Return the part of one rank (this one by default), in ranges of the order.

        Args:
            pending: The ranges that are cut up: a whole epoch, or what is left of one.
            batch_size: Rows of a batch of one rank.
            drop_last: Whether ranks take whole batches only.
            rank: Whose part.
        """
        if self.world_size == 1:
            return pending
        whose = self.rank if rank is None else rank
        sizes = self.sizes(length(pending), batch_size=batch_size, drop_last=drop_last)
        first = sum(sizes[:whose])
        return _cut_around(pending, first, first + sizes[whose])

    def sizes(self, count: int, *, batch_size: int, drop_last: bool) -> list[int]:
        """Return how many of ``count`` samples each rank takes."""
        world, unit = self.world_size, batch_size if drop_last else 1
        if world == 1:
            return [count]
        if self.shares is not None:
            unit = unit if self.uneven == "drop" else 1
            return [units * unit for units in apportion(count // unit, self.shares)]
        if self.uneven == "drop":
            return [count // (world * unit) * unit] * world
        if self.uneven == "pad":
            return [-(-count // (world * unit)) * unit] * world
        return [count // world + (rank < count % world) for rank in range(world)]


LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def split_of(environ: Mapping[str, str], uneven: Uneven = "drop") -> Split | None:
    """Return the split that a launcher's variables describe: those of torchrun, then of Slurm.

    ``None`` where there are none, or only one rank.

    Raises:
        ConfigError: Variables that are no numbers, or do not fit each other.
    """
    for rank, world in LAUNCHERS:
        if rank in environ and world in environ:
            try:
                found = int(environ[rank]), int(environ[world])
            except ValueError:
                raise ConfigError(
                    f"{rank}={environ[rank]!r} with {world}={environ[world]!r}: expected numbers"
                ) from None
            return (
                None if found[1] == 1 else Split(rank=found[0], world_size=found[1], uneven=uneven)
            )
    return None


def _cut_around(ranges: Ranges, first: int, end: int) -> Ranges:
    """Return positions of the concatenation as ``cut`` does, going on from its start at its end."""
    total = length(ranges)
    found: list[Range] = []
    while first < end:
        low = first % total
        step = min(end - first, total - low)
        found += cut(ranges, low, low + step)
        first += step
    return tuple(found)


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """Return ``count`` as whole numbers in the ratio of ``shares``, the rest to the largest.

    Of several largest shares the first takes it.
    """
    total = math.fsum(shares)
    sizes = [math.floor(count * (share / total)) for share in shares]
    sizes[shares.index(max(shares))] += count - sum(sizes)
    return sizes


def chunk_sizes(batch_size: int, ratios: Sequence[float]) -> list[int]:
    """Return the rows of one batch that each rank takes: at least one, the last takes the rest.

    ``s_i = round(batch_size * r_i)``, half up, leaving one row for each later rank.

    Raises:
        ConfigError: Fewer rows than ranks, or ratios that are not positive with the sum 1.
    """
    if not all(ratio > 0 for ratio in ratios) or not math.isclose(sum(ratios), 1, abs_tol=1e-6):
        raise ConfigError(f"ratios={list(ratios)}: expected positive numbers with the sum 1")
    if batch_size < len(ratios):
        raise ConfigError(
            f"batch_size={batch_size} for {len(ratios)} ranks: expected a row or more for each"
        )
    left, sizes = batch_size, []
    for position, ratio in enumerate(ratios[:-1]):
        later = len(ratios) - position - 1
        sizes.append(max(1, min(math.floor(batch_size * ratio + 0.5), left - later)))
        left -= sizes[-1]
    return [*sizes, left]
