"""The loop over one epoch: batches in, numbers about them out."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flodl.core.errors import NonFiniteError
from flodl.data import Batch
from flodl.engine.config import NonFinitePolicy
from flodl.engine.feeding import Feeder
from flodl.engine.nonfinite import NON_FINITE_HINT
from flodl.engine.resident import RowBatch
from flodl.engine.ring import StepRecord
from flodl.engine.step import TrainStep

LossFn = Callable[[float, int], None]

_logger = logging.getLogger(__name__)


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

    Args:
        epoch: Number of the epoch, for messages.
        policy: What a loss that is not finite does.
        on_loss: Told each loss and its samples as it arrives.
    """

    def __init__(self, epoch: int, policy: NonFinitePolicy, on_loss: LossFn | None = None) -> None:
        self._epoch = epoch
        self._on_loss = on_loss
        self._policy = policy
        self._sum = 0.0
        self._skipped = 0
        self._warned = False
        self._expected: deque[int] = deque()
        self._read = 0
        self.batches = 0
        self.samples = 0

    def expect(self, samples: int) -> None:
        """Count a batch whose loss comes later."""
        self.batches += 1
        self.samples += samples
        self._expected.append(samples)

    def add(self, record: StepRecord) -> None:
        """Add the loss of the next batch, in the order in which they were counted.

        Raises:
            NonFiniteError: The loss is not finite and the policy is ``"raise"``.
        """
        self._read += 1
        loss, samples = record.values[0], self._expected.popleft()
        if self._on_loss is not None:
            self._on_loss(loss, samples)
        if self._policy == "skip" and not math.isfinite(loss):
            self._skipped += samples
            self._warn("skipping such steps")
            return
        self._sum += loss * samples
        self._check(self._sum)

    def mean(self) -> float:
        """Return the mean over samples, those of skipped steps apart; NaN when there were none."""
        counted = self.samples - self._skipped
        return self._sum / counted if counted else math.nan

    def _check(self, total: float) -> None:
        if math.isfinite(total):
            return
        if self._policy == "raise":
            raise NonFiniteError(self._message(), hint=NON_FINITE_HINT)
        self._warn("going on")

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning(
                "%s; %s because on_nonfinite is %r", self._message(), what, self._policy
            )

    def _message(self) -> str:
        return (
            f"the training loss became NaN or infinite in epoch {self._epoch}, "
            f"at or before batch {self._read - 1}"
        )


def run_epoch(
    step: TrainStep,
    loader: Feeder,
    epoch: int,
    *,
    on_nonfinite: NonFinitePolicy,
    should_stop: Callable[[], bool],
    on_loss: LossFn | None = None,
) -> EpochResult:
    """Train on every batch of one epoch, or until a stop is asked for.

    Batches come from a loader, or from what gathers for it. A stop waits for the end of an
    accumulation, so that a resumed run takes the same steps; one that the epoch leaves unfinished
    is closed with what it has.

    Raises:
        NonFiniteError: A loss was NaN or infinite and the policy is ``"raise"``.
    """
    started = time.perf_counter()
    meter = LossMeter(epoch, on_nonfinite, on_loss)
    interrupted = False
    iterator = loader.epoch(epoch)
    try:
        with step.reporting_to(meter.add):
            for batch in iterator:
                for _ in range(batch.count if isinstance(batch, RowBatch) else 1):
                    meter.expect(batch.size)
                _take(step, batch, epoch, meter.batches - 1)
                if not step.has_open_window and should_stop():
                    interrupted = True
                    break
            step.finish_window()
    finally:
        iterator.close()
    return EpochResult(
        avg_loss=meter.mean(),
        batches=meter.batches,
        samples=meter.samples,
        wall_ms=(time.perf_counter() - started) * 1000,
        interrupted=interrupted,
    )


def _take(step: TrainStep, batch: Batch | RowBatch, epoch: int, index: int) -> None:
    try:
        step(batch)
    except Exception as error:
        error.add_note(f"in epoch {epoch}, batch {index}, global step {step.global_step}")
        raise
