"""A batch that does not fit into memory as a whole is taken in parts, from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flodl.device.memory import gpu_empty_cache, is_gpu_oom

if TYPE_CHECKING:
    from flodl.data import Batch
    from flodl.engine.body import StepBody
    from flodl.engine.config import Scalars

_logger = logging.getLogger(__name__)
_MOST_PARTS = 8


class BatchSplit:
    """Computes loss and gradients of batches, in 2, 4 or 8 parts once memory has run out.

    Each part's loss counts by its share of the rows, so the sum is the mean over the batch, and so
    are the gradients. The number of parts is remembered: batches that come later are like the one
    that did not fit. Only forward and backward are split; where memory runs out in an accumulation
    after the gradients of earlier batches were added to, nothing can be taken back, and the error
    is raised. So it is for graphs that carry state from step to step, whose rows it belongs to.

    Args:
        body: What a step computes.
        is_on: Whether to split at all.
    """

    def __init__(self, body: StepBody, *, is_on: bool) -> None:
        self._body = body
        self._is_on = is_on
        self.parts = 1
        """In how many parts a batch is taken."""
        self.let_go: Callable[[], None] | None = None
        """Gives back memory that is not needed for the next attempt."""

    def forward_backward(self, batch: Batch, *, starts_window: bool) -> tuple[Tensor, Scalars]:
        """Compute loss and gradients; return the loss, detached, and the scalars returned with it.

        Raises:
            StepContractError: The step function returned no differentiable scalar.
            torch.OutOfMemoryError: The batch does not fit in 8 parts either, or cannot be split.
        """
        while True:
            self._body.has_begun_backward = False
            try:
                return self._taken(batch, starts_window=starts_window)
            except RuntimeError as error:
                if not is_gpu_oom(error) or not self._may_split(batch, starts_window=starts_window):
                    raise
                reason = str(error).partition("\n")[0]
            # only here, where the error and the tensors in its frames are gone
            self._split(batch, reason, starts_window=starts_window)

    def _taken(self, batch: Batch, *, starts_window: bool) -> tuple[Tensor, Scalars]:
        body = self._body
        if min(self.parts, batch.size) == 1:
            return body.forward_backward(batch, starts_window=starts_window)
        total: Tensor | None = None
        sums: dict[str, Any] = {}
        for part in parts_of(batch, self.parts):
            share = part.size / batch.size
            loss, returned = body.forward_backward(
                part, starts_window=starts_window and total is None, share=share
            )
            total = loss * share if total is None else total + loss * share
            for name, value in returned.items():
                kept = value.detach() if isinstance(value, Tensor) else value
                sums[name] = sums.get(name, 0.0) + kept * share
        assert total is not None
        return total, sums

    def _may_split(self, batch: Batch, *, starts_window: bool) -> bool:
        body = self._body
        can_undo = starts_window or not body.has_begun_backward
        has_room = self.parts < min(_MOST_PARTS, batch.size)
        return self._is_on and can_undo and has_room and not body.state.has_memory

    def _split(self, batch: Batch, reason: str, *, starts_window: bool) -> None:
        if starts_window:
            self._body.drop_window()
        before, self.parts = self.parts, self.parts * 2
        if self.let_go is not None:
            self.let_go()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            gpu_empty_cache()
        _logger.warning(
            "out of memory with %d samples at a time; from now on a batch of %d samples is taken "
            "in %d parts of up to %d: %s",
            -(-batch.size // before),
            batch.size,
            self.parts,
            -(-batch.size // self.parts),
            reason,
        )


def parts_of(batch: Batch, count: int) -> Iterator[Batch]:
    """Yield a batch in parts of consecutive rows, as equal as can be, none of them empty."""
    tensors = batch.as_dict()
    count = min(count, batch.size)
    least, more = divmod(batch.size, count)
    start = 0
    for k in range(count):
        stop = start + least + (k < more)
        yield batch.replace({name: tensor[start:stop] for name, tensor in tensors.items()})
        start = stop
