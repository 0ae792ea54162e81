"""Using a scheduler: on an optimizer, as a table for a GPU, as a torch scheduler."""

from __future__ import annotations

import torch

from flodl.nn.schedulers.base import Scheduler
from flodl.optim import set_lr


def apply(scheduler: Scheduler, optimizer: torch.optim.Optimizer, step: int) -> float:
    """Set the rate of ``step`` on all groups of an optimizer, and return it."""
    rate = scheduler.lr(step)
    set_lr(optimizer, rate)
    return rate


def lr_table(scheduler: Scheduler, start: int, n: int) -> torch.Tensor:
    """Return the rates of steps ``start`` to ``start + n - 1`` as float32 on the CPU, ``[n]``.

    They are computed in float64 and rounded once. A reactive scheduler gives its current rate.
    """
    if start < 0 or n < 0:
        raise ValueError(f"lr_table(start={start}, n={n}): must not be negative")
    rates = [scheduler.lr(step) for step in range(start, start + n)]
    return torch.tensor(rates, dtype=torch.float64).to(torch.float32)


def as_torch(
    scheduler: Scheduler, optimizer: torch.optim.Optimizer
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a torch scheduler whose ``step()`` sets this scheduler's next rate on all groups.

    The rate of step 0 is set at once. Initial rates of the groups become 1, so that torch's
    product of initial rate and factor is the rate itself.
    """
    for group in optimizer.param_groups:
        group["initial_lr"] = 1.0

    def rate(step: int) -> float:
        # A plain function: torch would put the attributes of another callable in its state.
        return scheduler.lr(step)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
