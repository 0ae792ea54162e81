"""Schedulers made of others: warm-up, and one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flodl.nn.schedulers.base import (
    Schedule,
    Scheduler,
    WrappingSchedule,
    check_count,
    check_rate,
    check_scheduler,
    is_reactive,
    observed_by,
    plain_form,
    restore_observed,
)


@dataclass(frozen=True)
class WarmupScheduler(WrappingSchedule):
    """A linear rise to ``target_lr`` over ``warmup_steps``, then ``inner`` from its step 0.

    ``inner`` may be any scheduler, another warm-up too. A plateau scheduler inside observes
    during the rise as well.
    """

    inner: Scheduler
    target_lr: float
    warmup_steps: int

    def __post_init__(self) -> None:
        check_scheduler(self, self.inner)
        check_rate(self, target_lr=self.target_lr)
        check_count(self, least=0, warmup_steps=self.warmup_steps)

    def _rate(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.target_lr * (step + 1) / self.warmup_steps
        return self.inner.lr(step - self.warmup_steps)


@dataclass(frozen=True)
class SequentialScheduler(Schedule):
    """Schedulers one after the other, each from its own step 0.

    Args:
        parts: Each scheduler with its number of steps; the last goes on beyond them.
    """

    parts: tuple[tuple[Scheduler, int], ...]

    def __init__(self, parts: Iterable[tuple[Scheduler, int]]) -> None:
        object.__setattr__(self, "parts", tuple((inner, steps) for inner, steps in parts))
        if not self.parts:
            raise ValueError("SequentialScheduler([]): needs at least one (scheduler, steps)")
        for inner, steps in self.parts:
            check_scheduler(self, inner)
            check_count(self, steps=steps)

    @property
    def is_reactive(self) -> bool:  # type: ignore[override] # decided by what is inside
        """Whether a plateau scheduler is inside."""
        return any(is_reactive(inner) for inner, _ in self.parts)

    def _rate(self, step: int) -> float:
        for inner, steps in self.parts[:-1]:
            if step < steps:
                return inner.lr(step)
            step -= steps
        return self.parts[-1][0].lr(step)

    def observe(self, metric: float) -> float:
        """Tell every plateau scheduler inside a metric, and return the rate of the last of them."""
        reactive = [inner for inner, _ in self.parts if is_reactive(inner)]
        rates = [inner.observe(metric) for inner in reactive if isinstance(inner, Schedule)]
        return rates[-1] if rates else super().observe(metric)

    def to_dict(self) -> dict[str, Any]:
        """Return a map of plain values from which ``from_dict`` makes an equal one."""
        parts = [[plain_form(inner), steps] for inner, steps in self.parts]
        return {"type": "SequentialScheduler", "parts": parts}

    @classmethod
    def revived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with schedulers in place of their plain forms."""
        return {"parts": [(Schedule.from_dict(inner), steps) for inner, steps in values["parts"]]}

    def observed(self) -> list[Any]:
        """Return what each part has observed."""
        return [observed_by(inner) for inner, _ in self.parts]

    def restore(self, observed: list[Any]) -> None:
        """Take over what ``observed`` returned."""
        for (inner, _), part in zip(self.parts, observed, strict=True):
            restore_observed(inner, part)
