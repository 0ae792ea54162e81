"""Schedulers that decay by a factor: step, exponential, milestones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from flodl.nn.schedulers.base import PureSchedule, check_count, check_gamma, check_rate


@dataclass(frozen=True)
class StepDecay(PureSchedule):
    """``base_lr * gamma ** (step // step_size)``."""

    base_lr: float
    step_size: int
    gamma: float

    def __post_init__(self) -> None:
        check_rate(self, base_lr=self.base_lr)
        check_count(self, step_size=self.step_size)
        check_gamma(self, self.gamma)

    def _rate(self, step: int) -> float:
        return self.base_lr * self.gamma ** (step // self.step_size)


@dataclass(frozen=True)
class ExponentialLR(PureSchedule):
    """``base_lr * gamma ** step``; not torch's class of this name, which owns an optimizer."""

    base_lr: float
    gamma: float

    def __post_init__(self) -> None:
        check_rate(self, base_lr=self.base_lr)
        check_gamma(self, self.gamma)

    def _rate(self, step: int) -> float:
        return self.base_lr * self.gamma**step


@dataclass(frozen=True)
class MultiStepLR(PureSchedule):
    """``base_lr * gamma ** (milestones at or before the step)``.

    Milestones may come in any order; one that is listed twice counts twice. Not torch's class of
    this name, which owns an optimizer.
    """

    base_lr: float
    milestones: tuple[int, ...]
    gamma: float

    def __init__(self, base_lr: float, milestones: Iterable[int], gamma: float) -> None:
        object.__setattr__(self, "base_lr", base_lr)
        object.__setattr__(self, "milestones", tuple(sorted(milestones)))
        object.__setattr__(self, "gamma", gamma)
        check_rate(self, base_lr=base_lr)
        check_gamma(self, gamma)
        for milestone in self.milestones:
            check_count(self, least=0, milestones=milestone)

    def _rate(self, step: int) -> float:
        return self.base_lr * self.gamma ** bisect_right(self.milestones, step)
