"""How many batches are loaded ahead: from measured memory, unless the user says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl.device import MemoryInfo

LEAST = 2
BOOTSTRAP = 4
BOOTSTRAP_ASKS = 3

logger = logging.getLogger(__name__)


def usable_bytes(memory: MemoryInfo) -> int:
    """Return what a new tensor could take: free memory and blocks that torch keeps for reuse."""
    return memory.free + memory.reserved - memory.allocated


def fitting_depth(
    memory: MemoryInfo, *, cap: float, reserve: int, batch_bytes: int, num_batches: int
) -> int:
    """Return how many batches fit beside everything else: at least two, at most an epoch.

    ``(cap * total - used - reserve) // batch_bytes``, where blocks for reuse do not count as used.

    Args:
        memory: What the device has.
        cap: Share of the device that may be used at all.
        reserve: Bytes kept for the activations of a step.
        batch_bytes: Bytes of one batch; 0 when unknown.
        num_batches: Batches of an epoch.
    """
    budget = int(cap * memory.total) - (memory.total - usable_bytes(memory)) - reserve
    fits = max(0, budget) // batch_bytes if batch_bytes else LEAST
    return max(LEAST, min(fits, num_batches))


class PrefetchDepth:
    """The current depth, and when it is measured again.

    Until the consumer asks for its third batch a measured depth is a small constant: model,
    optimizer and activations exist only then. Afterwards each epoch measures anew.

    Args:
        fixed: The depth that the user gave.
        measure: Returns the depth that fits now; ``None`` where memory sets no limit.
        otherwise: The depth without ``fixed`` and ``measure``.
    """

    def __init__(
        self, fixed: int | None, measure: Callable[[], int] | None, otherwise: int
    ) -> None:
        self._measure = None if fixed is not None else measure
        self._probe = measure
        self._asks = 0
        self.depth = fixed if fixed is not None else otherwise if measure is None else BOOTSTRAP

    def begin_epoch(self) -> int:
        """Return the depth for a new epoch."""
        if self._measure is not None and self._asks >= BOOTSTRAP_ASKS:
            self.depth = self._measure()
        return self.depth

    def asked(self) -> None:
        """Note that the consumer asked for a batch."""
        if self._asks < BOOTSTRAP_ASKS:
            self._asks += 1
            if self._asks == BOOTSTRAP_ASKS and self._measure is not None:
                self.depth = self._measure()
                logger.info("prefetch depth: %d batches fit", self.depth)

    def fix(self, depth: int) -> None:
        """Use this depth from now on, and measure no more."""
        self.depth, self._measure = depth, None

    def resize(self) -> int:
        """Measure once, keep that depth, and measure no more on its own."""
        self.fix(self.depth if self._probe is None else self._probe())
        return self.depth

    def halve(self) -> int:
        """Return half the depth, at least 1; it is kept, as memory ran out."""
        self.fix(max(1, self.depth // 2))
        return self.depth
