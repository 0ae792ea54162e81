"""Conditions that end a loop: a positive output means halt."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from flodl.core.errors import ConfigError


class ThresholdHalt(nn.Module):
    """Halts when the largest element of the state is above a threshold; it has no parameters.

    Raises:
        ConfigError: The threshold is no number.
    """

    def __init__(self, threshold: float) -> None:
        super().__init__()
        given: object = threshold
        if not isinstance(given, int | float) or math.isnan(given):
            raise ConfigError(f"ThresholdHalt({threshold!r}): expected a number")
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        """Return ``max(x) - threshold``, one element; positive means halt."""
        return x.max() - self.threshold

    def flodl_attrs(self) -> dict[str, Any]:
        """Return what belongs to the structural hash."""
        return {"threshold": self.threshold}

    def extra_repr(self) -> str:
        """Return the threshold for ``repr``."""
        return str(self.threshold)


class LearnedHalt(nn.Module):
    """A linear layer that says when to halt, one output per sample; positive means halt.

    A decision by threshold passes no gradient to it, so it learns only in a loop with
    ``mode="act"``.

    Args:
        dim: Size of the state's last dimension.

    Raises:
        ConfigError: It is no whole number of at least 1.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        given: object = dim
        if not isinstance(given, int) or given < 1:
            raise ConfigError(f"LearnedHalt({dim!r}): expected a whole number of at least 1")
        self.proj = nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the halt logit, shape ``[..., 1]`` for a state of shape ``[..., dim]``."""
        logit: Tensor = self.proj(x)
        return logit

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"dim": self.proj.in_features}
