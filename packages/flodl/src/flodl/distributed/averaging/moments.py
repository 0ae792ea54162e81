"""Adam where ranks average parameters: second moments as if they averaged gradients.

A rank's Adam divides by the root of the running mean of ``g_i ** 2``; where gradients are averaged
with weights ``w_i``, it is that of ``sum_i(w_i * g_i) ** 2``. With ``g_i = s + e_i``, the noise
``e_i`` independent and of variance ``n``, the first is ``s ** 2 + n`` and the second
``s ** 2 + c * n``, where ``c = sum_i(w_i ** 2)`` is ``1 / W`` for W ranks of the same weight: left
alone, ranks take steps that are up to ``sqrt(1 / c)`` too short. The running mean ``m`` of a rank's
own gradients until now estimates ``s``, so that

    E[sum_i(w_i * g_i) ** 2]  is about  g_i ** 2 - (1 - c) * (g_i ** 2 - m ** 2)

and nothing has to be exchanged. Each of these terms is at least ``c * g_i ** 2``, so their mean
stays positive. ``m`` has a part of the noise, for ``b = betas[0]`` it is ``(1 - b) / (1 + b)``,
which stays in the moments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor

_ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)
_LEAST = 1 / 64
"""Of ``c``: the differences of bfloat16 stay positive, and the noise of ``m`` is more than this."""
_WINDOWS = 5
"""Their median counts: the end of an epoch may be one rank's alone."""
_DEAD_ZONE = 0.1
"""Of ``c``, relative: a new value costs a recording of captured steps, this one 1/20 of a step."""


class SharedMoments:
    """Corrects an optimizer's second moments before each of its steps.

    Args:
        optimizer: One of torch's Adams, or of a subclass.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._part = 0.0
        slowest = max(group["betas"][0] for group in optimizer.param_groups)
        self._warm_steps = round(1 / (1 - slowest)) if slowest < 1 else 0
        self._world = 1
        self._found = deque([1.0] * _WINDOWS, maxlen=_WINDOWS)
        self._used = 1.0
        self._steps = self._started = 0
        optimizer.register_step_pre_hook(self._correct)

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> Self | None:
        """Return what corrects an optimizer; ``None`` where it has no second moments like these."""
        if not isinstance(optimizer, _ADAMS):
            return None
        if any(
            group.get("amsgrad") or any(isinstance(beta, Tensor) for beta in group["betas"])
            for group in optimizer.param_groups
        ):
            return None
        return cls(optimizer)

    def weigh(self, weights: Sequence[float]) -> None:
        """Take note of the shares with which ranks were averaged; they add up to 1.

        There are none where this rank was handed an average that others made.
        """
        if not weights:
            return
        if len(weights) != self._world:
            self._meet(len(weights))
        self._found.append(sum(weight**2 for weight in weights))

    def follow(self, *, world: int, steps: int) -> bool:
        """Take note of the number of ranks and of steps taken.

        Returns:
            Whether the next step is corrected otherwise than those before.
        """
        if world != self._world:
            self._meet(world)
        found = median(self._found)
        if abs(found - self._used) > _DEAD_ZONE * self._used:
            self._used = found
        self._steps = steps
        is_warm = steps - self._started >= self._warm_steps
        part = 1 - max(self._used, _LEAST) if is_warm else 0.0
        changed, self._part = part != self._part, part
        return changed

    def state(self) -> dict[str, Any]:
        """Return what another object goes on with, to the bit."""
        return {
            "world": self._world,
            "found": list(self._found),
            "used": self._used,
            "started": self._started,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._world, self._used = int(state["world"]), float(state["used"])
        self._found.extend(state["found"])
        self._started = int(state["started"])

    def restart(self) -> None:
        """Take note that the optimizer's state was reset: ``m`` estimates nothing for a while."""
        self._started = self._steps

    def _meet(self, world: int) -> None:
        self._world = world
        self._used = 1 / world
        self._found.extend([self._used] * _WINDOWS)

    @torch.no_grad()
    def _correct(self, *_: Any) -> None:
        if not self._part:
            return
        for group in self._optimizer.param_groups:
            beta = group["betas"][1]
            if beta > 0:  # the step multiplies by it
                self._correct_group(group, self._part * (1 - beta) / beta)

    def _correct_group(self, group: dict[str, Any], factor: float) -> None:
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        means: list[Tensor] = []
        squares: list[Tensor] = []
        for parameter in group["params"]:
            state = self._optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            parameters.append(parameter)
            gradients.append(parameter.grad)
            means.append(state["exp_avg"])
            squares.append(state["exp_avg_sq"])
        if not gradients:
            return
        decay = 0.0 if group.get("decoupled_weight_decay") else group["weight_decay"]
        if decay:  # what the optimizer takes for the gradient
            sign = -1 if group.get("maximize") else 1
            gradients = list(torch._foreach_add(gradients, parameters, alpha=sign * decay))  # noqa: SLF001 - torch has no public name
        found = getattr(self._optimizer, "found_inf", None)
        if found is not None:  # the step finds on the device that it has to do nothing
            means, gradients = _zeros_where(found, means), _zeros_where(found, gradients)
        torch._foreach_addcmul_(squares, means, means, value=factor)
        torch._foreach_addcmul_(squares, gradients, gradients, value=-factor)


def _zeros_where(found: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.masked_fill(found > 0, 0.0) for tensor in tensors]
