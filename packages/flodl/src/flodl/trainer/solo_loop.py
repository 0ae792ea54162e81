"""A loop of the user's own on one device, in this process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from flodl.distributed.worker.cooperative import OwnLoop
from flodl.distributed.worker.own_step import OwnStep
from flodl.engine.config import NonFinitePolicy
from flodl.engine.loop import EpochResult, LossMeter
from flodl.trainer.interrupt import InterruptGuard
from flodl.trainer.solo import SoloRun
from flodl.trainer.stopping import is_leaving

if TYPE_CHECKING:
    import torch

    from flodl.data import Batch
    from flodl.distributed.worker.worker import Worker
    from flodl.trainer.handle import TrainHandle
    from flodl.trainer.ranks.spec import RunSpec


class SoloWorker(AbstractContextManager["Worker"]):
    """The ``with`` block of a run on one device; the program goes on after it.

    Args:
        spec: What is trained.
        on_end: Called with the handle when the run is over.
    """

    def __init__(self, spec: RunSpec, on_end: Callable[[TrainHandle], object] | None) -> None:
        self._run = SoloRun(spec.model_factory, spec.optim_factory, None, spec.config)
        self._on_end = on_end
        self._open = contextlib.ExitStack()
        self._guard = InterruptGuard()
        self._source = SoloSource(self._run, spec.config.step_nonfinite, self._guard.requested)

    def __enter__(self) -> Worker:
        run = self._run
        run.begin()
        self._open.enter_context(self._guard)
        self._open.enter_context(run.scalars.active())
        run.worker.loop = OwnLoop(self._source)
        return run.worker

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        run = self._run
        with self._open:
            if error is not None and not is_leaving(error):
                self._source.drop(error)
                run.abandon(error)
                return False
            try:
                self._end()
            except BaseException as raised:
                run.abandon(raised)
                raise
        finished = run.finished()
        if self._on_end is not None:
            self._on_end(finished)
        return not isinstance(error, SystemExit)

    def _end(self) -> None:
        run = self._run
        self._source.leave()
        is_over = run.epochs_done >= run.epochs
        if self._guard.requested() and not is_over:
            raise run.interruption()
        run.save("checkpoint" if is_over else "stop_training")


class SoloSource:
    """Batches of one epoch after the other, and what is due between the epochs.

    Args:
        run: The run, begun by the time that batches are asked for.
        policy: What a loss that is not finite does.
        is_interrupted: Whether the run is to end after the batch at hand.
    """

    def __init__(
        self, run: SoloRun, policy: NonFinitePolicy, is_interrupted: Callable[[], bool]
    ) -> None:
        self._run, self._policy, self._is_interrupted = run, policy, is_interrupted
        self._epoch: _OpenEpoch | None = None
        self._returned: Batch | None = None

    def next_batch(self) -> Batch | None:
        """Return the next batch, after evaluation, report and checkpoint where an epoch ends."""
        run = self._run
        while not self._is_to_end():
            if self._epoch is None:
                if run.epochs_done >= run.epochs:
                    return None
                self._epoch = _OpenEpoch(run, run.epochs_done, self._policy)
            batch, self._returned = self._returned, None
            if batch is None:
                batch = self._epoch.next_batch()
            if batch is not None:
                return batch
            self._close(interrupted=False)
        return None

    def _is_to_end(self) -> bool:
        run = self._run
        run.worker.should_stop = run.stops or self._is_interrupted()
        return run.worker.should_stop

    def epoch_of(self, batch: Batch) -> int:  # noqa: ARG002 - there is one at a time
        """Return the epoch of the run that a batch counts for."""
        return self._run.worker.current_epoch

    def step(self, batch: Batch, loss: torch.Tensor, started: float) -> None:  # noqa: ARG002
        """Take the step of a batch."""
        assert self._epoch is not None
        self._epoch.step(batch, loss)
        self._is_to_end()

    def put_back(self, batch: Batch) -> None:
        """Have a batch come again."""
        self._returned = batch
        own_step(self._run).forget_batch()

    def leave(self) -> None:
        """End the epoch that is open; what it has trained counts."""
        if self._epoch is not None:
            self._close(interrupted=True)

    def drop(self, error: BaseException) -> None:
        """Give up the epoch that is open, for what has been raised in it."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.drop(error)

    def _close(self, *, interrupted: bool) -> None:
        epoch, self._epoch = self._epoch, None
        assert epoch is not None
        self._run.leave(epoch.number, epoch.end(interrupted=interrupted))


class _OpenEpoch:
    """One epoch while the user's loop is in it.

    Args:
        run: The run.
        number: Of the epoch.
        policy: What a loss that is not finite does.
    """

    def __init__(self, run: SoloRun, number: int, policy: NonFinitePolicy) -> None:
        self.number = number
        self._run = run
        self._started = time.perf_counter()
        with contextlib.ExitStack() as stack:
            on_loss = stack.enter_context(run.entered(number))
            self._meter = LossMeter(number, policy, on_loss)
            stack.enter_context(run.step.reporting_to(self._meter.add))
            self._batches = stack.enter_context(contextlib.closing(run.loader.epoch(number)))
            self._open = stack.pop_all()

    def next_batch(self) -> Batch | None:
        return next(self._batches, None)

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        self._meter.expect(batch.size)
        own_step(self._run).take(loss)
        self._run.worker.local_step += 1

    def end(self, *, interrupted: bool) -> EpochResult:
        own_step(self._run).close_window()
        self._open.close()
        return EpochResult(
            avg_loss=self._meter.mean(),
            batches=self._meter.batches,
            samples=self._meter.samples,
            wall_ms=(time.perf_counter() - self._started) * 1000,
            interrupted=interrupted,
        )

    def drop(self, error: BaseException) -> None:
        with contextlib.suppress(type(error)):  # it goes on to whoever calls
            self._open.__exit__(type(error), error, error.__traceback__)


def own_step(run: SoloRun) -> OwnStep:
    """Return the step of a run whose loop is the user's."""
    step = run.step
    assert isinstance(step, OwnStep)
    return step
