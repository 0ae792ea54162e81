"""Whose turn it is: an arm trains an epoch when it is told to, and reports how long it took.

Loops that belong to a framework cannot be called epoch by epoch. So every arm runs its loop once,
asks before each epoch (and waits there), and reports after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from ddp_bench.speed.arms import Policy


class Finished(BaseException):
    """Ends an arm's loop: there are no more turns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One epoch to be trained.

    Attributes:
        policy: When the loss is read: after each step, or once after the epoch.
        keep: Of how many first steps the losses are kept.
    """

    policy: Policy
    keep: int = 0


@dataclass(kw_only=True, slots=True)
class Epoch:
    """One trained epoch.

    Attributes:
        ms: Its time, the device synchronized before and after it.
        cpu_ms: Processor time of all threads meanwhile: what others did beside it is not in it.
        host_ms: Time until the host had nothing more to do, where the loop is the suite's own.
        loss: Mean loss over its steps.
        first_step_ms: Time of its first step up to its loss, where losses are read each step.
        losses: Losses of its first steps, where they were to be kept.
    """

    ms: float
    cpu_ms: float
    host_ms: float | None
    loss: float
    first_step_ms: float | None = None
    losses: list[float] = field(default_factory=list)


class Scalar(Protocol):
    """A loss, of torch or of flodl."""

    def item(self) -> float:
        """Return the number, waiting for it."""


class Turns:
    """Measures the epochs of one arm.

    Args:
        turns: The turns; waits where the next is not known yet, ends when there are no more.
        report: Takes each epoch.
        device: Synchronized before and after an epoch.
    """

    def __init__(
        self,
        turns: Iterator[Turn],
        report: Callable[[Epoch], None],
        device: torch.device,
    ) -> None:
        self._turns = turns
        self._report = report
        self._device = device
        self._started = 0.0
        self._cpu_started = 0.0
        self._first_ms: float | None = None
        self._losses: list[float] = []
        self._steps = 0
        self.turn = Turn(policy="step")

    def begin(self) -> Turn:
        """Return the turn that starts now.

        Raises:
            Finished: There are no more.
        """
        turn = next(self._turns, None)
        if turn is None:
            raise Finished
        self.turn = turn
        self._first_ms, self._losses, self._steps = None, [], 0
        self._synchronize()
        self._cpu_started = time.process_time()
        self._started = time.perf_counter()
        return turn

    def read(self, loss: Scalar) -> float:
        """Return the loss of a step that is to be read."""
        value = loss.item()
        self._steps += 1
        if self._steps == 1:
            self._first_ms = self._elapsed_ms()
        if self._steps <= self.turn.keep:
            self._losses.append(value)
        return value

    def end(self, loss: float | torch.Tensor, *, is_own_loop: bool = True) -> None:
        """Report the epoch whose mean loss is given."""
        host_ms = self._elapsed_ms() if is_own_loop else None
        mean = float(loss)
        self._synchronize()
        ms, cpu_s = self._elapsed_ms(), time.process_time() - self._cpu_started
        self._report(
            Epoch(
                ms=ms,
                cpu_ms=cpu_s * 1e3,
                host_ms=host_ms,
                loss=mean,
                first_step_ms=self._first_ms,
                losses=list(self._losses),
            )
        )

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._started) * 1e3

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
