"""Batches of leased parts of epochs, as a controller hands them out while a run goes on."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from flodl.core.errors import ConfigError, StaleIteratorError
from flodl.data.jobs import BatchJob
from flodl.data.partition import cut, length, select

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flodl.data.batch import Batch
    from flodl.data.feed import Feed, Jobs
    from flodl.data.jobs import EpochRows
    from flodl.data.partition import Lease

KEPT_ORDERS = 2  # a rank may hold leases of an epoch and of the next one, never of a later one


class LeaseFeed:
    """Takes leases at any time and gives their batches, one lease after the other.

    A batch never holds samples of two leases, so the last one of a lease may be smaller. Leases
    may be assigned from another thread than the one that takes batches.

    Args:
        order: Returns the order of an epoch.
        begin: Prepares samples to be loaded.
        feed: Makes the feed of jobs.
        batch_size: Rows of a batch.
    """

    def __init__(
        self,
        order: Callable[[int], Tensor],
        begin: Callable[[Tensor], EpochRows],
        feed: Callable[[Jobs], Feed],
        batch_size: int,
    ) -> None:
        self._order = order
        self._begin = begin
        self._batch_size = batch_size
        self._orders: dict[int, Tensor] = {}
        self._jobs: deque[BatchJob] = deque()
        self._lock = threading.Lock()
        self._feed: Feed | None = feed(self._next_job)

    def _next_job(self) -> BatchJob | None:
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def assign(self, lease: Lease) -> None:
        """Add a lease behind those assigned before; its batches begin to load when it is its turn.

        Raises:
            ConfigError: It has positions that its epoch does not have.
            SamplerError: The sampler gave an order that does not fit the data set.
            StaleIteratorError: The loader was closed or has started something else.
        """
        with self._lock:
            self._check_open()
            order = self._order_of(lease.epoch)
            last = max((stop for _, stop in lease.ranges), default=0)
            if last > order.numel():
                raise ConfigError(
                    f"lease {lease.lease_id} reaches position {last}: epoch {lease.epoch} has "
                    f"{order.numel()} samples"
                )
            rows = self._begin(select(order, lease.ranges))
            self._jobs.extend(self._jobs_of(lease, rows))

    def _order_of(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders[epoch] = self._order(epoch)
            for old in sorted(self._orders)[:-KEPT_ORDERS]:
                del self._orders[old]
        return self._orders[epoch]

    def _jobs_of(self, lease: Lease, rows: EpochRows) -> list[BatchJob]:
        total, size = length(lease.ranges), self._batch_size
        return [
            BatchJob(
                rows=rows,
                start=start,
                stop=min(start + size, total),
                epoch=lease.epoch,
                index=number,
                lease_id=lease.lease_id,
                ranges=cut(lease.ranges, start, min(start + size, total)),
            )
            for number, start in enumerate(range(0, total, size))
        ]

    def take(self) -> Batch | None:
        """Return the next batch, ``None`` when every lease assigned so far is done.

        ``batch.index`` counts within the lease; ``batch.ranges`` are its positions in the order.

        Raises:
            DataWorkerError: Loading it raised; no further batches come.
            StaleIteratorError: The loader was closed or has started something else.
        """
        with self._lock:
            feed = self._check_open()
            feed.refill()
        try:
            return feed.take()
        except Exception:
            self.close()
            raise

    def _check_open(self) -> Feed:
        if self._feed is None:
            raise StaleIteratorError(
                "these leases ended: their loader was closed, failed, or started something else"
            )
        return self._feed

    def close(self) -> None:
        """End; leases that were assigned and not taken are dropped."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close(wait=True)
        self._jobs.clear()

    def expire(self) -> None:
        """End without waiting for loads in progress."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close(wait=False)
        self._jobs.clear()
