"""Learning rates of a step: what a schedule says, what the user sets, and a factor of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flodl.core.errors import ConfigError
from flodl.engine.config import AnyScheduler
from flodl.optim import scale_lr, set_lr


@dataclass(frozen=True, slots=True)
class StepRates:
    """Learning rates of the steps that one replay takes.

    Attributes:
        values: One for each step, on the device.
        targets: The tensors that the optimizer reads.
    """

    values: Tensor
    targets: Sequence[Tensor]

    @classmethod
    def of(cls, rates: Sequence[float] | None, targets: Sequence[Tensor]) -> StepRates | None:
        """Return the rates in memory that keeps its place; ``None`` where there are none."""
        if rates is None or not targets:
            return None
        values = torch.tensor(rates, dtype=torch.float32, device=targets[0].device)
        return cls(values, targets)

    def load(self, rates: Sequence[float]) -> None:
        """Write other rates, without a wait."""
        values = torch.tensor(rates, dtype=torch.float32)
        if self.values.is_cuda:
            values = values.pin_memory()
        self.values.copy_(values, non_blocking=True)

    def use(self, step: int) -> None:
        """Set the rates of one of the steps, on the device."""
        for target in self.targets:
            target.copy_(self.values[step])


class RateControl:
    """Keeps learning rates what a schedule says; whoever writes last wins.

    Args:
        optimizer: The optimizer.
        scheduler: The schedule, if there is one.
        keeps_tensors: Whether rates that are tensors stay these tensors, which graphs read.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scheduler: AnyScheduler | None,
        *,
        keeps_tensors: bool,
    ) -> None:
        self._keeps_tensors = keeps_tensors
        self._optimizer = optimizer
        self._scheduler = scheduler
        # decided once: asking a protocol costs more than the rest of a replayed step
        self._rate: Callable[[int], float] | None = None
        self._advance: Callable[[], None] | None = None
        if isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
            self._advance = scheduler.step
        elif scheduler is not None:
            self._rate = scheduler.lr
        self._written: float | None = None
        self.scale = 1.0
        """Factor of all rates, for runs with several ranks."""
        self._tensors: list[tuple[dict[str, Any], Tensor]] = []
        self.follow_groups()

    @property
    def scheduler(self) -> AnyScheduler | None:
        """The schedule, if there is one."""
        return self._scheduler

    def follow_groups(self) -> None:
        """Take note of the groups' tensors, which captured steps read."""
        self._tensors = [
            (group, group["lr"])
            for group in self._optimizer.param_groups
            if self._keeps_tensors and isinstance(group["lr"], Tensor)
        ]

    def forget(self) -> None:
        """Write the rate anew at the next step: the optimizer may have been loaded."""
        self._written = None
        self.follow_groups()

    def set_scale(self, factor: float) -> None:
        """Multiply all rates by ``factor`` from the next step on, in place of the factor before.

        With a schedule it multiplies what the schedule says, else the optimizer's rates.

        Raises:
            ConfigError: The factor is not positive and finite.
        """
        if not 0 < factor < math.inf:
            raise ConfigError(f"learning-rate scale {factor!r}: must be positive and finite")
        if factor == self.scale:
            return
        change, self.scale = factor / self.scale, factor
        self._written = None
        if self._rate is None:
            scale_lr(self._optimizer, change)
        if isinstance(self._scheduler, torch.optim.lr_scheduler.LRScheduler):
            self._scheduler.base_lrs = [rate * change for rate in self._scheduler.base_lrs]

    def before(self, step: int) -> None:
        """Set the rates of a step; nothing is launched unless one changes."""
        for group, tensor in self._tensors:
            if group["lr"] is not tensor:  # assigned as torch's users do: graphs read the tensor
                tensor.fill_(float(group["lr"]))
                group["lr"] = tensor
        if self._rate is not None:
            rate = self.scale * self._rate(step)
            if rate != self._written:
                set_lr(self._optimizer, rate)
                self._written = rate

    @property
    def steps_by_itself(self) -> bool:
        """Whether the rates of steps ahead are known: no schedule of torch has its say."""
        return self._advance is None

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold the groups' rates."""
        return [tensor for _, tensor in self._tensors]

    def ahead(self, step: int, count: int) -> list[float] | None:
        """Return the rates of the steps from ``step`` on, which are taken without more asking.

        ``None`` without a schedule.
        """
        if self._rate is None:
            return None
        rates = [self.scale * self._rate(step + ahead) for ahead in range(count)]
        self._written = rates[-1]
        return rates

    def after(self) -> None:
        """Move a schedule of torch on by one step."""
        if self._advance is not None:
            self._advance()
