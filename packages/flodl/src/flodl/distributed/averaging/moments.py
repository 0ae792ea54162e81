"""Adam where ranks average parameters: second moments as if they averaged gradients.

A rank's Adam divides by the root of the running mean of ``g_i ** 2``; where gradients are averaged,
it is that of ``mean_i(g_i) ** 2``. With ``g_i = s + e_i``, the noise ``e_i`` independent and of
variance ``n``, the first is ``s ** 2 + n`` and the second ``s ** 2 + n / W``: left alone, each of W
ranks takes steps that are up to ``sqrt(W)`` too short. The running mean ``m`` of a rank's own
gradients estimates ``s``, so that

    E[mean_i(g_i) ** 2]  is about  g_i ** 2 - (1 - 1 / W) * (g_i ** 2 - m ** 2)

and nothing has to be exchanged. The sum over steps stays positive, since each of its terms is at
least ``g_i ** 2 / W``.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

_WARM_STEPS = 20
"""Steps until ``m``, which starts at zero, estimates anything: twice 1 / (1 - 0.9)."""
_ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)


class SharedMoments:
    """Corrects an optimizer's second moments after each of its steps.

    Args:
        optimizer: One of torch's Adams, or of a subclass.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._part = 0.0
        optimizer.register_step_post_hook(self._correct)

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> Self | None:
        """Return what corrects an optimizer; ``None`` where it has no second moments like these."""
        if not isinstance(optimizer, _ADAMS):
            return None
        if any(group.get("amsgrad") for group in optimizer.param_groups):
            return None
        return cls(optimizer)

    def follow(self, *, world: int, steps: int) -> bool:
        """Take note of the number of ranks and of steps taken.

        Returns:
            Whether the next step is corrected otherwise than those before.
        """
        part = 1 - 1 / world if steps >= _WARM_STEPS else 0.0
        changed, self._part = part != self._part, part
        return changed

    @torch.no_grad()
    def _correct(self, *_: Any) -> None:
        if not self._part:
            return
        for group in self._optimizer.param_groups:
            gradients: list[Tensor] = []
            means: list[Tensor] = []
            squares: list[Tensor] = []
            for parameter in group["params"]:
                state = self._optimizer.state.get(parameter)
                gradient = parameter.grad
                if gradient is None or gradient.is_sparse or not state:
                    continue
                gradients.append(gradient)
                means.append(state["exp_avg"])
                squares.append(state["exp_avg_sq"])
            if gradients:
                factor = (1 - group["betas"][1]) * self._part
                torch._foreach_addcmul_(squares, gradients, gradients, value=-factor)
                torch._foreach_addcmul_(squares, means, means, value=factor)
