"""Schedulers along a cosine or a triangle."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flodl.nn.schedulers.base import PureSchedule, check_count, check_rate

_ONE_CYCLE_DIVISOR = 25.0


def _cosine(high: float, low: float, fraction: float) -> float:
    return low + 0.5 * (high - low) * (1 + math.cos(math.pi * fraction))


@dataclass(frozen=True)
class CosineScheduler(PureSchedule):
    """Half a cosine from ``base_lr`` to ``min_lr`` over ``total_steps``, then ``min_lr``."""

    base_lr: float
    min_lr: float
    total_steps: int

    def __post_init__(self) -> None:
        check_rate(self, base_lr=self.base_lr, min_lr=self.min_lr)
        check_count(self, total_steps=self.total_steps)

    def _rate(self, step: int) -> float:
        return _cosine(self.base_lr, self.min_lr, min(step, self.total_steps) / self.total_steps)


@dataclass(frozen=True)
class OneCycleLR(PureSchedule):
    """A linear rise from ``max_lr / 25`` to ``max_lr``, then half a cosine back.

    Not torch's class of this name: no momentum is cycled, the rise is linear, and the last rate
    is ``max_lr / 25``.

    Args:
        max_lr: The highest rate.
        total_steps: Steps of the whole cycle; later steps keep the last rate.
        warmup_frac: Part of them that rises, 0 to 1.
    """

    max_lr: float
    total_steps: int
    warmup_frac: float = 0.3

    def __post_init__(self) -> None:
        check_rate(self, max_lr=self.max_lr)
        check_count(self, total_steps=self.total_steps)
        if not 0 <= self.warmup_frac <= 1:
            raise ValueError(f"OneCycleLR(warmup_frac={self.warmup_frac!r}): must be in [0, 1]")

    def _rate(self, step: int) -> float:
        low = self.max_lr / _ONE_CYCLE_DIVISOR
        rising = round(self.total_steps * self.warmup_frac)
        step = min(step, self.total_steps)
        if step < rising:
            return low + (self.max_lr - low) * step / rising
        return _cosine(self.max_lr, low, (step - rising) / max(self.total_steps - rising, 1))


@dataclass(frozen=True)
class CyclicLR(PureSchedule):
    """A triangle wave: up over ``step_size`` steps, down over ``step_size_down``, and again.

    Not torch's class of this name, which owns an optimizer.
    """

    base_lr: float
    max_lr: float
    step_size: int
    step_size_down: int | None = None

    def __post_init__(self) -> None:
        check_rate(self, base_lr=self.base_lr, max_lr=self.max_lr)
        check_count(self, step_size=self.step_size)
        if self.step_size_down is not None:
            check_count(self, step_size_down=self.step_size_down)

    def _rate(self, step: int) -> float:
        up = self.step_size
        down = up if self.step_size_down is None else self.step_size_down
        position = step % (up + down)
        height = position / up if position < up else 1 - (position - up) / down
        return self.base_lr + (self.max_lr - self.base_lr) * height
