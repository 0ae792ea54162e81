"""The batches of one epoch, as a loop on several devices goes over them."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Protocol, final

from flodl.core.errors import StaleIteratorError
from flodl.distributed.replica.batch import ShardedBatch, Turn
from flodl.distributed.replica.feeding import Deal, Feeding

_log = logging.getLogger(__name__)


class Loop(Deal, Protocol):
    """What an epoch needs of the one whose loop goes over it."""

    @property
    def has_pending_gradients(self) -> bool:
        """Whether gradients wait for a step."""
        ...

    @property
    def steps_each_turn(self) -> bool:
        """Whether the user's loop has made a step since the last rows, so will after the next."""
        ...

    def step_alone(self) -> None:
        """Make a step that the user's loop does not make."""
        ...

    def take_note(self, turn: Turn) -> None:
        """See the rows that come next."""
        ...


@final
class ReplicaEpoch:
    """Batches of one epoch; ``len()`` is the loader's number of them, or of those that are left.

    With ElChe each item holds the batches of all devices up to the next step, so there are fewer.
    """

    def __init__(self, feeding: Feeding, loop: Loop, number: int) -> None:
        self._feeding = feeding
        self._loop = loop
        self._number = number
        self._thread = threading.get_ident()
        self._is_open = False
        self._is_stale = False
        self._length = feeding.begin(number, loop)
        self._index = feeding.first_index
        self._is_open = True

    def __iter__(self) -> ReplicaEpoch:
        return self

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("this loader does not know how many batches an epoch has")
        return self._length

    @property
    def batches(self) -> int | None:
        """Batches of the loader, where it knows."""
        return self._length

    def __next__(self) -> ShardedBatch:
        if self._is_stale:
            raise StaleIteratorError(
                f"epoch {self._number}: this iterator ended when another epoch was started"
            )
        while self._is_open:
            turn = self._feeding.take()
            if turn is None:
                self.close()
                break
            will_step = self._loop.steps_each_turn
            self._loop.take_note(turn)
            index, self._index = self._index, self._index + 1
            if any(turn.shards):
                return ShardedBatch(turn, epoch=self._number, index=index)
            # The last rows of an epoch may be too few for all ranks: in their step, the others wait
            # for this one.
            if will_step:
                self._loop.step_alone()
        raise StopIteration

    def expire(self) -> None:
        """End for another epoch."""
        self._is_stale = True
        self.close()

    def close(self) -> None:
        """End; gradients of whole batches that wait for a step get one."""
        if not self._is_open:
            return
        self._is_open = False
        self._feeding.end()
        if threading.get_ident() != self._thread:
            return  # collected as garbage by a thread that must not drive the devices
        if self._loop.deals_whole and self._loop.has_pending_gradients:
            _log.warning(
                "epoch %d was left with gradients that no step() had used: stepping once for them",
                self._number,
            )
            self._loop.step_alone()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()
