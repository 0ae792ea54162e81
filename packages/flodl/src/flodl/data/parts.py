"""Fixed parts of a data set, for ranks that keep no more of it than their own part."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from flodl.data.sampler import mix, seeded_permutation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class FixedParts:
    """A contiguous part of the data set for each rank, the same in each epoch.

    A part holds the samples that its rank takes in an epoch, and its share of those that an epoch
    leaves out: with a shuffle these are others in each epoch.

    Args:
        length: Samples in the data set.
        sizes: Samples that each rank takes in an epoch.
    """

    def __init__(self, length: int, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        spare, world = length - sum(sizes), len(sizes)
        held = [size + spare // world + (r < spare % world) for r, size in enumerate(sizes)]
        self._ends = [0, *itertools.accumulate(held)]

    def of(self, rank: int) -> range:
        """Return the samples of one rank."""
        return range(self._ends[rank], self._ends[rank + 1])

    def order(self, epoch: int, seed: int | None) -> Tensor:
        """Return an order of all samples of which each rank's slice lies in its part.

        The slices follow one another, and what the epoch leaves out comes last.

        Args:
            epoch: Its number.
            seed: Base of the shuffles; ``None`` keeps the order of the data set.
        """
        taken, left = [], []
        for rank, size in enumerate(self._sizes):
            part = self.of(rank)
            visits = torch.arange(len(part))
            if seed is not None:
                visits = seeded_permutation(len(part), mix(seed, rank), epoch)
            taken.append(part.start + visits[:size])
            left.append(part.start + visits[size:])
        return torch.cat([*taken, *left])
