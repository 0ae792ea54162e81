"""Evaluation: every sample exactly once, means weighted by samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.data import Batch, DataLoader


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalContext:
    """What an evaluation function may want to know besides model and batch."""

    epoch: int
    """The epoch that just ended, 0-based."""
    device: torch.device


EvalResult = float | torch.Tensor | Mapping[str, float | torch.Tensor]
EvalFn = Callable[[Any, Batch, EvalContext], EvalResult]
"""``(model, batch, context) -> value`` or ``-> {name: value}``: means over the batch."""


def evaluate(
    model: nn.Module, loader: DataLoader, eval_fn: EvalFn, context: EvalContext
) -> dict[str, float]:
    """Return the mean of what ``eval_fn`` gives, over all samples of the loader.

    Runs in evaluation mode and without gradients; the modules' training flags are put back. A
    single value is named ``eval``. Values stay on their device until the last batch.

    Raises:
        StepContractError: ``eval_fn`` returned something that is no scalar, or other names than
            for the first batch.
    """
    sums: dict[str, torch.Tensor] = {}
    samples = 0
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            for batch in loader.epoch(0):
                values = _named(eval_fn(model, batch, context))
                if samples and values.keys() != sums.keys():
                    raise StepContractError(
                        f"eval_fn returned {sorted(values)} after {sorted(sums)} before",
                        hint="return the same names for every batch",
                    )
                for name, value in values.items():
                    weighted = value.double() * batch.size
                    sums[name] = sums[name] + weighted if name in sums else weighted
                samples += batch.size
    finally:
        for module, training in modes:
            module.training = training
    return {name: float(total) / samples for name, total in sums.items()}


def _named(result: EvalResult) -> dict[str, torch.Tensor]:
    pairs = result.items() if isinstance(result, Mapping) else [("eval", result)]
    named = {}
    for name, value in pairs:
        tensor = torch.as_tensor(value).detach()
        if tensor.numel() != 1:
            raise StepContractError(
                f"eval_fn returned {name!r} of shape {tuple(tensor.shape)}; "
                "a result has one element",
                hint="reduce it to its mean over the batch",
            )
        named[name] = tensor.reshape(())
    return named
