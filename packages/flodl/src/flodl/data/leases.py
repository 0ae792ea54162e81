"""Batches of leased parts of epochs, as a controller hands them out while a run goes on."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flodl.core.errors import ConfigError, DataStallError, StaleIteratorError
from flodl.data.jobs import BatchJob
from flodl.data.partition import cut, select

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flodl.data.batch import Batch
    from flodl.data.feed import Feed, Jobs
    from flodl.data.jobs import EpochRows
    from flodl.data.partition import Lease, Ranges

KEPT_ORDERS = 2  # a rank may hold leases of an epoch and of the next one, never of a later one


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseProgress:
    """How much of a lease was taken: ``batches`` of it, which are its first ``samples``."""

    lease: Lease
    """The lease, without what was cut off."""
    batches: int
    samples: int

    @property
    def taken(self) -> Ranges:
        """Positions in the order of the epoch that were taken."""
        return self.lease.head(self.samples)

    @property
    def left(self) -> Ranges:
        """Positions that were not."""
        return self.lease.tail(self.samples)


class LeaseFeed:
    """Takes leases at any time and gives their batches, one lease after the other.

    A batch never holds samples of two leases, so the last one of a lease may be smaller. One
    thread takes batches; any thread may assign leases, cut them and ask for the progress
    meanwhile. A batch that ``take`` has returned, or is waiting for, is never cut off.

    Made by ``DataLoader.leases``.

    Args:
        order: Returns the order of an epoch; called when the first lease of it is assigned.
        begin: Prepares samples to be loaded.
        feed: Makes the feed of jobs.
        batch_size: Rows of a batch.
        abort: Called when loading hangs, to end what can be ended.
    """

    def __init__(
        self,
        order: Callable[[int], Tensor],
        begin: Callable[[Tensor], EpochRows],
        feed: Callable[[Jobs], Feed],
        batch_size: int,
        abort: Callable[[], None],
    ) -> None:
        self._order = order
        self._begin = begin
        self._batch_size = batch_size
        self._abort = abort
        self._orders: dict[int, Tensor] = {}
        self._preparing = threading.Lock()  # held while an order is computed, so not by take
        self._lock = threading.Lock()
        self._held: list[_Held] = []
        self._waiting: deque[_Held] = deque()
        self._waited_for: _Held | None = None
        self._feed: Feed | None = feed(self._next_job)

    def _next_job(self) -> BatchJob | None:
        """Return the next batch to load; those that call it do so one at a time."""
        while self._waiting:
            job = self._waiting[0].next_job()
            if job is not None:
                return job
            self._waiting.popleft()
        return None

    @property
    def is_open(self) -> bool:
        """Whether leases may be assigned and batches taken."""
        return self._feed is not None

    @property
    def batches_left(self) -> int:
        """Batches of the leases assigned so far that nobody has asked for."""
        with self._lock:
            return sum(held.end - held.claimed for held in self._held)

    def assign(self, lease: Lease) -> None:
        """Add a lease behind those assigned before; its batches begin to load at once.

        Raises:
            ConfigError: It has positions that its epoch does not have, or a lease with this id is
                held already.
            SamplerError: The sampler gave an order that does not fit the data set.
            StaleIteratorError: The loader was closed or has started something else.
        """
        with self._preparing:
            self._check_open()
            order = self._order_of(lease.epoch)
            last = max((stop for _, stop in lease.ranges), default=0)
            if last > order.numel():
                raise ConfigError(
                    f"lease {lease.lease_id} reaches position {last}: epoch {lease.epoch} has "
                    f"{order.numel()} samples"
                )
            held = _Held(lease, self._begin(select(order, lease.ranges)), self._batch_size)
            with self._lock:
                feed = self._check_open()
                if any(other.lease.lease_id == lease.lease_id for other in self._held):
                    raise ConfigError(
                        f"lease {lease.lease_id} is held already",
                        hint="give each lease an id of its own",
                    )
                if held.end:
                    self._held.append(held)
                    self._waiting.append(held)
                feed.refill()

    def _order_of(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            while len(self._orders) >= KEPT_ORDERS:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._order(epoch)
        return self._orders[epoch]

    def take(self) -> Batch | None:
        """Return the next batch, ``None`` when every lease assigned so far is done.

        ``batch.lease_id`` is the lease and ``batch.index`` counts within it; ``batch.ranges`` are
        the positions in the order of ``batch.epoch``. It waits while the batch is loaded.

        Raises:
            DataWorkerError: Loading it raised. No further batches come; ``give_back`` says what
                was not taken, this batch included.
            DataStallError: It took longer than the loader's ``timeout``; otherwise the same.
            StaleIteratorError: The loader was closed or has started something else.
        """
        with self._lock:
            feed = self._check_open()
            held = self._waited_for = self._claimed(feed)
        if held is None:
            return None
        try:
            return self._taken(feed, held)
        except Exception as error:
            if isinstance(error, DataStallError):
                self._abort()
            self.close()
            raise

    def _taken(self, feed: Feed, held: _Held) -> Batch | None:
        batch = None
        try:
            batch = feed.take()
        finally:
            with self._lock:
                self._waited_for = None
                if batch is not None:
                    held.taken = held.claimed
                    self._forget_if_done(held)
        return batch

    def _claimed(self, feed: Feed) -> _Held | None:
        """Return the lease whose batch is next, past batches that were cut off meanwhile."""
        feed.refill()
        while (job := feed.claim()) is not None:
            for held in self._held:
                if held.rows is job.rows:
                    held.claimed = job.index + 1
                    return held
            feed.skip()
        return None

    def cut(self, lease_id: int, batches: int = 0) -> Ranges:
        """Shorten a lease to its first ``batches`` batches and return the positions cut off.

        Batches that were taken or are being waited for stay: then less than asked is cut off. A
        lease that is done, or not known, has nothing to cut off.
        """
        with self._lock:
            for held in self._held:
                if held.lease.lease_id == lease_id:
                    return self._cut(held, batches)
        return ()

    def give_back(self) -> tuple[Lease, ...]:
        """Return what is left of each lease, as leases with their ids, and hold none any more.

        Also after an error and after ``close``: what was not taken then, is given back once.
        """
        with self._lock:
            rests = [replace(held.lease, ranges=self._cut(held, 0)) for held in list(self._held)]
        return tuple(rest for rest in rests if rest.ranges)

    def _cut(self, held: _Held, batches: int) -> Ranges:
        least = held.claimed if held is self._waited_for else held.taken
        rest = held.cut(max(batches, least))
        self._forget_if_done(held)
        return rest

    def _forget_if_done(self, held: _Held) -> None:
        if held.taken == held.end:
            self._held.remove(held)

    def progress(self) -> tuple[LeaseProgress, ...]:
        """Return how far each lease is that is not done, in the order of their turn."""
        with self._lock:
            return tuple(
                LeaseProgress(
                    lease=held.lease, batches=held.taken, samples=held.samples(held.taken)
                )
                for held in self._held
            )

    def _check_open(self) -> Feed:
        if self._feed is None:
            raise StaleIteratorError(
                "these leases ended: their loader was closed, failed, or started something else",
                hint="loader.leases() begins anew",
            )
        return self._feed

    def close(self) -> None:
        """End; what was not taken stays to be given back."""
        self._end(wait=True)

    def expire(self) -> None:
        """End without waiting for loads in progress."""
        self._end(wait=False)

    def _end(self, *, wait: bool) -> None:
        with self._lock:
            feed, self._feed = self._feed, None
        if feed is not None:
            feed.close(wait=wait)


class _Held:
    """A lease and how many of its batches were handed to the loading, asked for, and taken.

    ``asked`` >= ``claimed`` >= ``taken``; batches from ``end`` on were cut off.
    """

    def __init__(self, lease: Lease, rows: EpochRows, batch_size: int) -> None:
        self.lease = lease
        self.rows = rows
        self.end = -(-lease.size // batch_size)
        self.claimed = 0
        self.taken = 0
        self._asked = 0
        self._batch_size = batch_size

    def samples(self, batches: int) -> int:
        """Return how many samples the first batches have."""
        return min(batches * self._batch_size, self.lease.size)

    def next_job(self) -> BatchJob | None:
        """Return the next batch to load, ``None`` after the last."""
        lease, index = self.lease, self._asked
        start, stop = self.samples(index), self.samples(index + 1)
        if start >= stop:  # more than equal when it is cut meanwhile
            return None
        self._asked += 1
        return BatchJob(
            rows=self.rows,
            start=start,
            stop=stop,
            epoch=lease.epoch,
            index=index,
            lease_id=lease.lease_id,
            ranges=cut(lease.ranges, start, stop),
        )

    def cut(self, batches: int) -> Ranges:
        """Keep the first batches and return the positions of the others."""
        self.end = min(self.end, batches)
        kept = self.samples(self.end)
        rest = self.lease.tail(kept)
        self.lease = replace(self.lease, ranges=self.lease.head(kept))
        return rest
