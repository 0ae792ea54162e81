"""Relative positions of DeBERTa: which row of the position table a distance uses."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def bucket(distances: Tensor, buckets: int, reach: int) -> Tensor:
    """Return signed buckets: exact up to ``buckets // 2``, then growing with the logarithm.

    The logarithm is float32, and its argument is not clamped: distances beyond ``reach`` get
    buckets beyond the last one. After He et al., DeBERTa (2021), and its published code.

    Args:
        distances: Whole numbers, query position minus key position.
        buckets: Number of buckets of one sign.
        reach: Distance at which the last bucket is.
    """
    middle = buckets // 2
    size = distances.abs().clamp(min=max(middle, 1))
    grown = torch.log(size / middle) / torch.log(torch.tensor((reach - 1) / middle))
    far = torch.ceil(grown * (middle - 1)) + middle
    return torch.where(distances.abs() <= middle, distances, (far * distances.sign()).long())


class Distances(nn.Module):
    """Row of the position table for each pair of tokens.

    The rows of all distances are computed on the CPU, so they are the same on every device; a
    device keeps its copies. None is ever dropped: a captured step may read it.

    Args:
        span: Half the rows of the position table.
        buckets: Buckets of one sign, or less than 1 for a row for each distance.
        reach: Distance of the last bucket.
        length: Sequence length to prepare for; longer ones are prepared when they come.
    """

    def __init__(self, *, span: int, buckets: int, reach: int, length: int) -> None:
        super().__init__()
        self._span, self._buckets, self._reach = span, buckets, reach
        self._rows: dict[int, list[int]] = {}
        self._edges: dict[int, list[tuple[int, int]]] = {}
        self._copies: dict[tuple[int, torch.device], Tensor] = {}
        self._prepare(length)

    def _prepare(self, length: int) -> None:
        with torch.device("cpu"):
            distances = torch.arange(1 - length, length)
            rows = distances
            if self._buckets > 0 and self._reach > 0:
                rows = bucket(distances, self._buckets, self._reach)
            rows = (rows + self._span).clamp(0, 2 * self._span - 1)
            # Beyond ``reach`` buckets may shrink again, so the edges are not those of the ends.
            both = torch.stack([rows[:length].flip(0), rows[length - 1 :]])
            first, last = both.amin(0).cummin(0).values, both.amax(0).cummax(0).values
        self._rows[length] = rows.tolist()
        self._edges[length] = list(zip(first.tolist(), (last + 1).tolist(), strict=True))

    def _prepared(self, length: int) -> int:
        """Return the shortest length that is prepared and enough."""
        for known in self._rows:  # they grow
            if length <= known:
                return known
        grown: int = 2 ** math.ceil(math.log2(length))
        self._prepare(grown)
        return grown

    def rows(self, length: int) -> tuple[int, int]:
        """Return the first row, and the one after the last, that ``length`` tokens use."""
        return self._edges[self._prepared(length)][length - 1]

    def table(self, length: int, device: torch.device) -> Tensor:
        """Return the rows of the distances of at least ``length`` tokens, the least one first."""
        key = (self._prepared(length), device)
        if key not in self._copies:
            self._copies[key] = torch.tensor(self._rows[key[0]], device=device)
        return self._copies[key]

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[S, S]`` for states ``[B, S, H]``: rows, counted from the first one in use."""
        length = x.shape[1]
        first, _ = self.rows(length)
        table = self.table(length, x.device)
        at = torch.arange(length, device=x.device)
        return table[at[:, None] - at[None, :] + len(table) // 2] - first
