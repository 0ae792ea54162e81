"""How much each rank counts in an average, and how the learning rate follows the world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flodl.core.errors import ConfigError

RAMP_WINDOWS = 5


def total_weight(samples: Sequence[int], gamma: float) -> float:
    """Return the sum of ``n ** gamma`` over ranks with samples."""
    return math.fsum(n**gamma for n in samples if n > 0)


def weights(samples: Sequence[int], gamma: float = 1.0) -> list[float]:
    """Return ``n ** gamma`` as shares of one; a rank without samples gets 0.

    Raises:
        ConfigError: No rank has samples.
    """
    total = total_weight(samples, gamma)
    if total == 0:
        raise ConfigError(f"weights of samples {list(samples)}: no rank has any")
    return [n**gamma / total if n > 0 else 0.0 for n in samples]


def lr_scale(world: int, ratio: float) -> float:
    """Return the factor of the learning rate: ``1 + (W - 1) * ratio``."""
    return 1.0 + (world - 1) * ratio


@dataclass(kw_only=True, slots=True)
class LrRamp:
    """Moves the factor of the learning rate to that of a new world over five windows."""

    ratio: float
    start: float = 1.0
    target: float = 1.0
    windows: int = RAMP_WINDOWS
    """Windows since the last change, at most those of the ramp."""

    @property
    def value(self) -> float:
        """The factor now."""
        return self.start + (self.target - self.start) * self.windows / RAMP_WINDOWS

    def begin(self, world: int) -> None:
        """Start a run: no ramp."""
        self.start = self.target = lr_scale(world, self.ratio)
        self.windows = RAMP_WINDOWS

    def change(self, world: int) -> None:
        """Ramp from the factor now to that of another world."""
        target = lr_scale(world, self.ratio)
        if target != self.target:
            self.start, self.target, self.windows = self.value, target, 0

    def advance(self) -> None:
        """Count a committed window."""
        self.windows = min(self.windows + 1, RAMP_WINDOWS)
