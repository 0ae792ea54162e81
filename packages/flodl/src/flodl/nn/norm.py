"""Normalization for any number of trailing dimensions, and a check before evaluating."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from flodl.core.errors import UntrainedStatsError


class BatchNorm(_BatchNorm):
    """Batch normalization of ``[N, C, *]``; arguments and state are those of torch's."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        _check_channels(self, input, least_dims=2)


class InstanceNorm(_InstanceNorm):
    """Instance normalization of ``[N, C, *]``, with weight and bias unless ``affine=False``.

    Arguments and state are otherwise those of torch's.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype
        )

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return ``input`` with each channel of each sample at mean 0 and variance 1."""
        _check_channels(self, input, least_dims=3)
        result: Tensor = self._apply_instance_norm(input)  # type: ignore[no-untyped-call]
        return result


def _check_channels(module: _NormBase, x: Tensor, *, least_dims: int) -> None:
    shape, name = list(x.shape), type(module).__name__
    if x.dim() < least_dims:
        dims = "[N, C, …]" if least_dims == 2 else "[N, C, d, …]"
        raise ValueError(f"{name}: input has shape {shape}; it must be {dims}")
    if x.shape[1] != module.num_features:
        raise ValueError(
            f"{name}: input {shape} has {x.shape[1]} channels; "
            f"the module was made for {module.num_features}"
        )


def check_norm_stats(module: nn.Module) -> None:
    """Make sure that every normalization with running statistics has seen a batch.

    Evaluation would otherwise use mean 0 and variance 1. It reads counters, so it waits for a GPU.

    Raises:
        UntrainedStatsError: Some have not; the message names them.
    """
    counters = {
        name or type(part).__name__: part.num_batches_tracked
        for name, part in module.named_modules()
        if isinstance(part, _NormBase) and part.num_batches_tracked is not None
    }
    untrained = [name for name, count in counters.items() if int(count) == 0]
    if untrained:
        raise UntrainedStatsError(
            f"evaluating would use statistics that no batch has set: {', '.join(untrained)}",
            hint="train first, or load a checkpoint that has the statistics",
        )
