"""The policy for torch.compile inside a step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn

from flodl.data import Batch
from flodl.engine.config import StepResult, TrainStepFn

_logger = logging.getLogger(__name__)


class CompiledStep:
    """Calls a step function with the compiled model, or with the plain one when that fails.

    Args:
        step_fn: The step function.
        model: The model.
        options: ``True``, or options of ``torch.compile``; shapes are fixed unless they say
            otherwise.
    """

    def __init__(
        self, step_fn: TrainStepFn, model: nn.Module, options: bool | Mapping[str, Any]
    ) -> None:
        chosen = {} if isinstance(options, bool) else dict(options)
        self._step_fn = step_fn
        self._compiled = cast("nn.Module", torch.compile(model, **{"dynamic": False, **chosen}))
        self.is_active = True

    def __call__(self, model: nn.Module, batch: Batch) -> StepResult:
        """Return the step function's result."""
        if not self.is_active:
            return self._step_fn(model, batch)
        try:
            return self._step_fn(self._compiled, batch)
        except Exception as error:
            if not _is_of_compiler(error):
                raise
            self.is_active = False
            text = " ".join(str(error).split())[:200]
            _logger.warning(
                "compile: going on without torch.compile: %s: %s", type(error).__name__, text
            )
        return self._step_fn(model, batch)


def _is_of_compiler(error: BaseException) -> bool:
    """Return whether the compiler failed, and not the code that it compiled."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))
