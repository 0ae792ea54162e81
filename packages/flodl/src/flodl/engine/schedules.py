"""Schedules as they may be given: one, or what makes one once the optimizer and the ranks exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeAlias

import torch

from flodl.core.errors import ConfigError
from flodl.engine.config import AnyScheduler, Scheduler

SchedulerFactory: TypeAlias = (
    Callable[[int], AnyScheduler] | Callable[[torch.optim.Optimizer], AnyScheduler]
)
"""``(world_size) -> schedule``, or ``(optimizer) -> schedule`` with a parameter of that name."""
GivenScheduler: TypeAlias = AnyScheduler | SchedulerFactory


def is_schedule(given: object) -> bool:
    """Return whether this is a schedule itself."""
    if isinstance(given, type):
        return False
    return isinstance(given, Scheduler | torch.optim.lr_scheduler.LRScheduler)


def check_scheduler(given: object) -> None:
    """Raise unless this is a schedule, or may make one.

    Raises:
        ConfigError: It is something else.
    """
    if given is not None and not is_schedule(given) and not callable(given):
        raise ConfigError(
            f"scheduler={given!r}: must have a method lr(step) -> float, or make a schedule from "
            "world_size or optimizer"
        )


def made_scheduler(
    given: GivenScheduler | None, optimizer: torch.optim.Optimizer, world_size: int
) -> AnyScheduler | None:
    """Return the schedule that is given, or that is made here.

    A factory gets the optimizer when it has a parameter named ``optimizer``, else the number of
    ranks.

    Raises:
        ConfigError: What a factory returns is no schedule.
    """
    check_scheduler(given)
    if given is None or is_schedule(given):
        return given  # type: ignore[return-value] # is_schedule has told
    takes_optimizer = "optimizer" in inspect.signature(given).parameters  # type: ignore[arg-type] # callable by now
    made = given(optimizer) if takes_optimizer else given(world_size)  # type: ignore[operator, arg-type] # as above
    if not is_schedule(made):
        raise ConfigError(
            f"the scheduler factory returned {type(made).__name__}, which has no lr(step)",
            hint="name its parameter optimizer if it makes a torch LRScheduler",
        )
    return made
