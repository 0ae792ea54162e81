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
    device keeps its copy.

    Args:
        span: Half the rows of the position table.
        buckets: Buckets of one sign, or less than 1 for a row for each distance.
        reach: Distance of the last bucket.
        length: Sequence length to prepare for; longer ones are prepared when they come.
    """

    def __init__(self, *, span: int, buckets: int, reach: int, length: int) -> None:
        super().__init__()
        self._span, self._buckets, self._reach = span, buckets, reach
        self._on_cpu = torch.empty(0, dtype=torch.long, device="cpu")
        self._copies: dict[torch.device, Tensor] = {}
        self._prepare(length)

    def _prepare(self, length: int) -> None:
        with torch.device("cpu"):
            distances = torch.arange(1 - length, length)
            rows = distances
            if self._buckets > 0 and self._reach > 0:
                rows = bucket(distances, self._buckets, self._reach)
            self._on_cpu = (rows + self._span).clamp(0, 2 * self._span - 1)
        self._copies = {}

    def rows(self, length: int) -> tuple[int, int]:
        """Return the first row, and the one after the last, that ``length`` tokens use."""
        if 2 * length - 1 > len(self._on_cpu):
            self._prepare(2 ** math.ceil(math.log2(length)))
        middle = len(self._on_cpu) // 2
        first, last = self._on_cpu[middle + 1 - length], self._on_cpu[middle + length - 1]
        return int(first), int(last) + 1

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[S, S]`` for states ``[B, S, H]``: rows, counted from the first one in use."""
        length = x.shape[1]
        first, _ = self.rows(length)
        if x.device not in self._copies:
            self._copies[x.device] = self._on_cpu.to(x.device)
        table = self._copies[x.device]
        at = torch.arange(length, device=x.device)
        return table[at[:, None] - at[None, :] + len(table) // 2] - first
