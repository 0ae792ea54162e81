"""How far a rank had drifted from the consensus."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Divergence", "measure", "norm"]

_SMALLEST_NORM = 1e-10


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """Norms of one rank's parameters against the consensus, in double precision."""

    delta: float
    """``||p - c|| / ||c||``."""
    pre_norm: float
    """``||p||``."""
    post_norm: float
    """``||c||``."""

    @property
    def cosine(self) -> float:
        """The cosine of the angle between ``p`` and ``c``."""
        squares = self.pre_norm**2 + self.post_norm**2 - (self.delta * self.post_norm) ** 2
        return squares / (2 * self.pre_norm * self.post_norm)


def norm(values: Tensor) -> float:
    """Return the Euclidean norm, summed in double precision."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def measure(own: Tensor, consensus: Tensor, pre_norm: float) -> Divergence | None:
    """Return how far ``own`` is from the consensus; ``None`` where that is (almost) zero.

    ``own``, whose norm is ``pre_norm``, is overwritten.
    """
    post_norm = norm(consensus)
    if post_norm < _SMALLEST_NORM:
        return None
    delta = norm(own.sub_(consensus)) / post_norm
    return Divergence(delta=delta, pre_norm=pre_norm, post_norm=post_norm)
