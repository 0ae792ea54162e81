"""Loops of the user's own: epochs and batches come to them, and the step of each goes back.

The run decides when an epoch begins and ends; what a rank does besides training happens while the
loop waits for its next batch, and in the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import torch

from flodl.core.errors import RunFailed, StepContractError
from flodl.core.log import warn_once

if TYPE_CHECKING:
    from flodl.data import Batch
    from flodl.distributed.worker.loop import RankLoop
    from flodl.distributed.worker.worker import Worker

MOST_RETURNS = 3
"""Times that one batch may come back without its step, before that is an error."""
_logger = logging.getLogger(__name__)


class Source(Protocol):
    """Where the batches of a loop come from."""

    def next_batch(self) -> Batch | None:
        """Return the next batch, after whatever is due before it; ``None``: the run is over."""

    def epoch_of(self, batch: Batch) -> int:
        """Return the epoch of the run that a batch counts for."""

    def step(self, batch: Batch, loss: torch.Tensor, started: float) -> None:
        """Take the step of a batch that was given out at a value of ``time.perf_counter``."""

    def put_back(self, batch: Batch) -> None:
        """Have a batch come again, whose step was not taken."""


class Epoch:
    """One epoch as a rank sees it; yields the batches that fall to this rank.

    Args:
        number: Of the run, from 0.
        loop: Where the batches come from.
    """

    def __init__(self, number: int, loop: OwnLoop) -> None:
        self.number = number
        self._loop = loop

    def __iter__(self) -> Iterator[Batch]:
        return self._loop.batches(self.number)

    def __repr__(self) -> str:
        return f"Epoch({self.number})"


class OwnLoop:
    """Keeps a user's loop to its contract: one step for each batch.

    Args:
        source: Where batches come from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._next: Batch | None = None
        self._began = 0.0
        self._epoch = 0
        self._returns = 0
        self.at_hand: Batch | None = None
        """The batch that was given out and whose step was not taken."""

    def epochs(self) -> Iterator[Epoch]:
        """Yield epochs as they begin, until the run is over.

        An epoch that the user leaves before its batches are trained comes again.
        """
        while (batch := self._peek()) is not None:
            self._epoch = max(self._epoch, self._source.epoch_of(batch))
            yield Epoch(self._epoch, self)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield batches until one is of a later epoch.

        What a rank that died has left of an earlier one comes with those of this epoch.
        """
        while (batch := self._peek()) is not None and self._source.epoch_of(batch) <= epoch:
            self._next, self.at_hand = None, batch
            self._began = time.perf_counter()
            yield batch

    def step(self, loss: object) -> None:
        """Take the step of the batch at hand.

        Raises:
            StepContractError: There is none, or the loss is no scalar.
        """
        batch = self.at_hand
        if batch is None:
            raise StepContractError(
                "w.step(loss): there is no batch at hand: its step is taken, or none was given out",
                hint="call it once for each batch that the epoch yields",
            )
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise StepContractError(
                f"w.step({what}): the loss of a batch is a tensor of one element",
                hint="reduce it, for example with .mean()",
            )
        self._source.step(batch, loss, self._began)
        self.at_hand, self._returns = None, 0

    def _peek(self) -> Batch | None:
        """Return the batch that comes next, without giving it out."""
        if self.at_hand is not None:
            self._put_back(self.at_hand)
        if self._next is None:
            self._next = self._source.next_batch()
        return self._next

    def _put_back(self, batch: Batch) -> None:
        self._returns += 1
        if self._returns == MOST_RETURNS:
            raise StepContractError(
                f"a batch of {batch.size} samples was given out {MOST_RETURNS} times without "
                "w.step(loss); its epoch cannot end without it",
                hint="call w.step(loss) for every batch; leave samples out in the data set or with "
                "a sampler, and end the run by leaving the `with` block",
            )
        warn_once(
            _logger,
            "a batch was given out and w.step(loss) was not called for it; it comes again",
        )
        self.at_hand = None
        self._source.put_back(batch)


class RankSource:
    """Batches of a rank, from the loop that follows its controller.

    Args:
        loop: The rank's loop, which has joined the run.
    """

    def __init__(self, loop: RankLoop) -> None:
        trainee = loop.trainee
        assert trainee is not None
        self._loop, self._trainee = loop, trainee

    def next_batch(self) -> Batch | None:
        """Return the next batch.

        Raises:
            RunFailed: The run ended this rank; or what one of the user's functions raised.
        """
        batch = self._loop.next_batch()
        if batch is None:
            raise_end(self._loop)
        return batch

    def epoch_of(self, batch: Batch) -> int:
        """Return the epoch of the run that a batch counts for."""
        return self._trainee.epoch_of(batch)

    def step(self, batch: Batch, loss: torch.Tensor, started: float) -> None:
        """Take a step, and the average that is due after it.

        Where the exchange of gradients is broken off, the batch comes again.
        """
        trainee = self._trainee
        if not self._loop.take(lambda: trainee.train_given(batch, loss, started)):
            _logger.info("a step was broken off, as the ranks change; its batch comes again")
        self._loop.settle()

    def put_back(self, batch: Batch) -> None:
        """Have a batch come again."""
        self._trainee.put_back(batch)


def begin(loop: RankLoop) -> Worker:
    """Bring a rank into its run, and return its worker, which gives out batches.

    Raises:
        RunFailed: The run ended this rank before it was a member; or what a factory raised.
    """
    loop.join()
    if loop.code is not None:
        raise_end(loop)
    trainee = loop.trainee
    assert trainee is not None
    trainee.worker.loop = OwnLoop(RankSource(loop))
    return trainee.worker


def end(loop: RankLoop, error: BaseException | None) -> None:
    """End a rank's part after the user's loop, in good order; its status is ``loop.code`` then.

    Args:
        loop: The rank's loop.
        error: What the user's loop raised; ``None`` where it was left, which ends the run for all
            ranks if it was not over.
    """
    if loop.code is None and error is None:
        loop.stop("stop_training")
    elif loop.code is None and error is not None:
        trainee = loop.trainee
        own = None if trainee is None else trainee.worker.loop
        loop.fail(error, None if own is None else own.at_hand)
    loop.close()


def raise_end(loop: RankLoop) -> None:
    """Raise what ended a rank before its time; nothing is raised at the end of the run.

    Raises:
        RunFailed: The run ended this rank; or what one of the user's functions raised.
    """
    if loop.error is not None:
        raise loop.error
    if loop.code:
        raise RunFailed(f"the run has ended this rank with status {loop.code}")
