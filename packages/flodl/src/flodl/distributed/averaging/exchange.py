"""The contract of averaging one flat buffer over the ranks of a generation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from flodl.distributed.averaging import kernels
from flodl.distributed.averaging.wire import Wire
from flodl.distributed.collective.errors import CollectiveError

__all__ = ["Exchange", "Part", "Payload", "check_weights", "fold", "participants"]

_WEIGHT_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the flat buffer and how it is averaged."""

    start: int
    stop: int
    is_equal: bool = False
    """Whether ranks with any weight count the same; otherwise by their weights."""

    def weights(self, shares: Sequence[float]) -> list[float]:
        """Return each rank's weight in this stretch, given the shares of work."""
        if not self.is_equal:
            return list(shares)
        count = sum(share > 0 for share in shares)
        return [1.0 / count if share > 0 else 0.0 for share in shares]

    def within(self, start: int, stop: int) -> Part | None:
        """Return the overlap with ``start:stop``, counted from ``start``; ``None`` if empty."""
        low, high = max(self.start, start), min(self.stop, stop)
        return Part(low - start, high - start, self.is_equal) if low < high else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """What a rank puts into one average."""

    values: Tensor | None
    """Flat float32; ``None``: nothing, which needs a weight of 0."""
    parts: tuple[Part, ...]
    """Cover the buffer without gaps or overlaps."""
    side: Tensor
    """Float64 numbers that every rank gets from every rank as they are; the first is the weight."""
    wire: Wire = "fp32"
    is_sum: bool = False
    """Whether values are summed as they are (weights 1) instead of averaged by weight."""


class Exchange(ABC):
    """Averages one payload after another over a generation: start, advance until True, take.

    Every rank ends with the same bits. Values are left alone. An exchange that was abandoned or
    that raised is closed; form a new one.
    """

    result: Tensor
    """The average, float32, after `advance` returned True and until the next `start`."""
    sides: Tensor
    """What each rank sent aside, a row for each."""
    bytes_out: int = 0
    """Payload bytes sent by this rank in the last average."""
    bytes_in: int = 0
    """Payload bytes received by this rank in the last average."""

    @abstractmethod
    def start(self, payload: Payload) -> None:
        """Begin; returns at once."""

    @abstractmethod
    def advance(self) -> bool:
        """Do what can be done without waiting, and return whether the result is there.

        Raises:
            CollectiveError: A peer is gone, or the ranks do not agree.
        """

    @abstractmethod
    def residual(self) -> Tensor | None:
        """Return what this rank still owes by rounding; ``None`` without feedback."""

    @abstractmethod
    def close(self) -> None:
        """Leave at once, whatever is in flight."""


def check_weights(sides: Tensor) -> list[float]:
    """Return the weights of all ranks from what they sent aside.

    Raises:
        CollectiveError: They do not add up to one.
    """
    weights: list[float] = sides[:, 0].tolist()
    total = sum(weights)
    if not abs(total - 1.0) < _WEIGHT_SLACK or min(weights) < 0:
        raise CollectiveError(
            f"weights {', '.join(f'{weight:g}' for weight in weights)} add up to {total:g}, not 1",
            hint="every rank must use the weight that the controller gave it for this window",
        )
    return weights


def participants(weights: Sequence[float]) -> list[int]:
    """Return the ranks that add something: a weight of zero must also hide a NaN."""
    return [rank for rank, weight in enumerate(weights) if weight > 0]


def fold(rows: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> None:
    """Fill ``out`` with the weighted sum of the rows that count, in rank order."""
    counted = participants(weights)
    if not counted:
        out.zero_()
        return
    kernels.weighted_average(
        [rows[rank] for rank in counted], [weights[rank] for rank in counted], out=out
    )
