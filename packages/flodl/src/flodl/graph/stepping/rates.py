"""Learning rates of an optimizer whose loop is the graph's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

_Mark: TypeAlias = tuple[int, int] | float


class GroupRates:
    """What each group of parameters began with, or was given since by somebody else.

    A scheduler of torch, or a line of the user's, writes rates into the groups between two steps;
    that is taken for another beginning, so that a scale of the graph's still multiplies it.

    Args:
        optimizer: Its groups may become more.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._begun: list[float] = []
        self._written: list[tuple[_Mark, float]] = []
        self.look()

    def look(self) -> None:
        """Take over what somebody else has written."""
        for number, group in enumerate(self._optimizer.param_groups):
            mark = _mark(group["lr"])
            if number == len(self._begun):
                self._begun.append(float(group["lr"]))
                self._written.append((mark, self._begun[number]))
            elif self._written[number][0] != mark:
                value, before = float(group["lr"]), self._written[number][1]
                self._begun[number] = self._begun[number] * value / before if before else value
                self._written[number] = (mark, value)

    def take(self, other: GroupRates) -> None:
        """Begin with what the groups of another replica's optimizer begin with."""
        self.look()
        shared = min(len(self._begun), len(other._begun))
        self._begun[:shared] = other._begun[:shared]

    def write(self, rate: Callable[[float], float]) -> None:
        """Set the rate of each group, given what it began with."""
        for number, group in enumerate(self._optimizer.param_groups):
            value = rate(self._begun[number])
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(value)  # in place: a captured step reads this tensor
            else:
                group["lr"] = value
            self._written[number] = (_mark(group["lr"]), value)


def _mark(rate: Any) -> _Mark:
    """Return what changes whenever a rate is written, without waiting for a GPU."""
    if isinstance(rate, torch.Tensor):
        return id(rate), rate._version  # noqa: SLF001 - torch has no public name for it
    return float(rate)
