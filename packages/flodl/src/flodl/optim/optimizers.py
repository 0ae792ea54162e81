"""The seven optimizers: torch's own, each with flodl's mixin in front.

Learning rates are optional, with torch's defaults.
"""

from __future__ import annotations

from typing import Any

import torch

from flodl.optim.mixin import OptimizerMixin
from flodl.optim.parameters import ParameterGroups


class SGD(OptimizerMixin, torch.optim.SGD):
    """Stochastic gradient descent, with momentum where asked; arguments as in torch."""


class Adam(OptimizerMixin, torch.optim.Adam):
    """Adam; arguments as in torch."""


class AdamW(OptimizerMixin, torch.optim.AdamW):
    """Adam with decoupled weight decay; arguments as in torch, so the third is ``betas``."""

    def __init__(self, params: ParameterGroups, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1 and isinstance(args[1], int | float):
            raise TypeError(
                f"AdamW(params, lr, {args[1]!r}): the third argument is betas, a pair; "
                f"write AdamW(params, lr, weight_decay={args[1]!r})"
            )
        super().__init__(params, *args, **kwargs)


class RMSprop(OptimizerMixin, torch.optim.RMSprop):
    """RMSprop; arguments as in torch."""


class Adagrad(OptimizerMixin, torch.optim.Adagrad):
    """Adagrad; arguments as in torch.

    Its step counter lives on the host, so a captured step would not count:
    :class:`~flodl.optim.CapturableAdagrad` is for captured training.
    """


class RAdam(OptimizerMixin, torch.optim.RAdam):
    """Rectified Adam; arguments as in torch."""


class NAdam(OptimizerMixin, torch.optim.NAdam):
    """Adam with Nesterov momentum; arguments as in torch.

    ``momentum_decay=0`` keeps the momentum coefficient the same at every step.
    """
