"""The loop over one epoch: batches in, numbers about them out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from flodl.core.errors import NonFiniteError
from flodl.data import Batch, DataLoader
from flodl.engine.config import NonFinitePolicy
from flodl.engine.step import Stepper

_logger = logging.getLogger(__name__)
_GPU_READ_INTERVAL = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochResult:
    """What the loop saw in one epoch."""

    avg_loss: float
    """Mean loss weighted by samples; NaN when there was no batch."""
    batches: int
    samples: int
    wall_ms: float
    interrupted: bool
    """Whether the epoch was left early because a stop was asked for."""


class LossMeter:
    """Sums losses weighted by samples, and looks out for NaN and infinity.

    On the CPU each loss is read at once, which costs less than one tensor operation. On a GPU
    the sum stays there and is read every 50 batches, so the host need not wait for each step.

    Args:
        epoch: Number of the epoch, for messages.
        policy: What a loss that is not finite does.
    """

    def __init__(self, epoch: int, policy: NonFinitePolicy) -> None:
        self._epoch = epoch
        self._policy = policy
        self._host_sum = 0.0
        self._device_sum: torch.Tensor | None = None
        self._warned = False
        self.batches = 0
        self.samples = 0

    def add(self, loss: torch.Tensor, samples: int) -> None:
        """Add the loss of one batch.

        Raises:
            NonFiniteError: A loss so far was not finite and the policy is ``"raise"``.
        """
        self.batches += 1
        self.samples += samples
        if loss.device.type == "cpu":
            self._host_sum += loss.item() * samples
            self._check(self._host_sum)
            return
        weighted = loss.float() * samples
        self._device_sum = weighted if self._device_sum is None else self._device_sum + weighted
        if self.batches % _GPU_READ_INTERVAL == 0:
            self._check(self._device_sum.item())

    def mean(self) -> float:
        """Return the mean over samples, NaN when there were none.

        Raises:
            NonFiniteError: As :meth:`add`.
        """
        if not self.samples:
            return math.nan
        total = self._host_sum
        if self._device_sum is not None:
            total += self._device_sum.item()
        self._check(total)
        return total / self.samples

    def _check(self, total: float) -> None:
        if math.isfinite(total):
            return
        message = (
            f"the training loss became NaN or infinite in epoch {self._epoch}, "
            f"at or before batch {self.batches - 1}"
        )
        if self._policy == "raise":
            raise NonFiniteError(
                message, hint="lower the learning rate, clip gradients, or check the inputs"
            )
        if not self._warned:
            self._warned = True
            _logger.warning("%s; going on because on_nonfinite is 'warn'", message)


def run_epoch(
    stepper: Stepper,
    loader: DataLoader,
    epoch: int,
    *,
    on_nonfinite: NonFinitePolicy,
    should_stop: Callable[[], bool],
) -> EpochResult:
    """Train on every batch of one epoch, or until a stop is asked for.

    Raises:
        NonFiniteError: A loss was NaN or infinite and the policy is ``"raise"``.
    """
    started = time.perf_counter()
    meter = LossMeter(epoch, on_nonfinite)
    interrupted = False
    iterator = loader.epoch(epoch)
    try:
        for batch in iterator:
            loss = _step(stepper, batch, epoch, meter.batches)
            meter.add(loss, batch.size)
            if should_stop():
                interrupted = True
                break
    finally:
        iterator.close()
    return EpochResult(
        avg_loss=meter.mean(),
        batches=meter.batches,
        samples=meter.samples,
        wall_ms=(time.perf_counter() - started) * 1000,
        interrupted=interrupted,
    )


def _step(stepper: Stepper, batch: Batch, epoch: int, index: int) -> torch.Tensor:
    try:
        return stepper.step(batch)
    except Exception as error:
        error.add_note(f"in epoch {epoch}, batch {index}, global step {stepper.global_step}")
        raise
