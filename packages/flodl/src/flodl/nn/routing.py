"""Routers for ``gate`` and selectors for ``switch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from flodl.core.errors import ConfigError
from flodl.nn.shaping import add_references

if TYPE_CHECKING:
    from collections.abc import Mapping


class SoftmaxRouter(nn.Module):
    """Weights over ``n`` experts that sum to 1: a linear layer, then softmax.

    References bound with ``using`` are added to the stream first.

    Args:
        dim: Size of the stream's last dimension.
        n: Number of experts.

    Raises:
        ConfigError: A size is no whole number of at least 1.
    """

    def __init__(self, dim: int, n: int) -> None:
        super().__init__()
        self.proj = _linear("SoftmaxRouter", dim, n)

    def forward(self, x: Tensor, refs: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return weights of shape ``[..., n]`` for a stream of shape ``[..., dim]``."""
        return torch.softmax(self.proj(add_references(x, refs, "SoftmaxRouter")), dim=-1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"dim": self.proj.in_features, "n": self.proj.out_features}


class SigmoidRouter(nn.Module):
    """Independent weights in (0, 1) for ``n`` experts; they need not sum to 1.

    References bound with ``using`` are added to the stream first.

    Args:
        dim: Size of the stream's last dimension.
        n: Number of experts.

    Raises:
        ConfigError: A size is no whole number of at least 1.
    """

    def __init__(self, dim: int, n: int) -> None:
        super().__init__()
        self.proj = _linear("SigmoidRouter", dim, n)

    def forward(self, x: Tensor, refs: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return weights of shape ``[..., n]`` for a stream of shape ``[..., dim]``."""
        return torch.sigmoid(self.proj(add_references(x, refs, "SigmoidRouter")))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"dim": self.proj.in_features, "n": self.proj.out_features}


class FixedSelector(nn.Module):
    """Always selects the same branch; a switch with it is a straight call of that branch.

    Args:
        index: The branch, from 0.

    Raises:
        ConfigError: The index is negative.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        if index < 0:
            raise ConfigError(f"FixedSelector({index}): branches are counted from 0")
        self.index = index

    def forward(self, x: Tensor, refs: Mapping[str, Tensor] | None = None) -> int:  # noqa: ARG002
        """Return the index; stream and references are not looked at."""
        return self.index

    def flodl_attrs(self) -> dict[str, Any]:
        """Return what belongs to the structural hash."""
        return {"index": self.index}

    def extra_repr(self) -> str:
        """Return the index for ``repr``."""
        return str(self.index)


class ArgmaxSelector(nn.Module):
    """Selects one branch for the whole batch: the largest of the batch mean of its logits.

    The choice passes no gradient, so the layer does not learn through a switch. References bound
    with ``using`` are added to the stream first.

    Args:
        dim: Size of the stream's last dimension.
        n: Number of branches.

    Raises:
        ConfigError: A size is no whole number of at least 1.
    """

    def __init__(self, dim: int, n: int) -> None:
        super().__init__()
        self.proj = _linear("ArgmaxSelector", dim, n)

    def forward(self, x: Tensor, refs: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the index as a tensor without dimensions."""
        logits = self.proj(add_references(x, refs, "ArgmaxSelector"))
        index: Tensor = logits.reshape(-1, logits.shape[-1]).mean(dim=0).argmax()
        return index

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"dim": self.proj.in_features, "n": self.proj.out_features}


def _linear(owner: str, dim: int, n: int) -> nn.Linear:
    sizes: dict[str, object] = {"dim": dim, "n": n}
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"{owner}({name}={size!r}): expected a whole number of at least 1")
    return nn.Linear(dim, n)
