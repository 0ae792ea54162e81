"""Where an iterator takes its batches: this thread, background threads, or a set on the device."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

from flodl.core.errors import DataStallError
from flodl.data.lookahead import Lookahead
from flodl.data.transfer import Sent
from flodl.device import is_gpu_oom

if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl.data.batch import Batch
    from flodl.data.jobs import BatchJob
    from flodl.data.prefetch import PrefetchDepth
    from flodl.data.transfer import Transfer

    Jobs = Callable[[], BatchJob | None]

logger = logging.getLogger(__name__)


class Feed(ABC):
    """Batches in the order of their jobs."""

    @abstractmethod
    def claim(self) -> BatchJob | None:
        """Return the job whose batch ``take`` gives next, ``None`` when there is none now."""

    @abstractmethod
    def skip(self) -> None:
        """Drop the claimed job: its batch is not wanted any more."""

    @abstractmethod
    def take(self) -> Batch | None:
        """Return the batch of the claimed job, claiming one if need be; ``None`` without a job.

        Raises:
            DataWorkerError: Loading it raised; names the batch.
            DataStallError: It took too long.
        """

    @abstractmethod
    def refill(self) -> None:
        """Begin to load ahead what has become known since; any thread may call it."""

    @abstractmethod
    def close(self, *, wait: bool) -> None:
        """Drop what was loaded ahead and end what loads it."""


class Place(Protocol):
    """Something to load, and where it belongs."""

    @property
    def epoch(self) -> int:
        """Epoch it is of."""
        ...

    @property
    def index(self) -> int:
        """Position in the epoch."""
        ...


Job = TypeVar("Job", bound=Place)


class Sender(Generic[Job]):
    """Loads a batch and sends it; when the device is full, the batch waits on the host.

    Args:
        read: Forms the batch of a job on the host.
        transfer: The way to the device.
        depth: Halved when the device is full.
        give_back: Returns memory that torch keeps for reuse to the device.
        finish: Completes a batch that has arrived.
    """

    def __init__(
        self,
        read: Callable[[Job], Batch],
        transfer: Transfer,
        depth: PrefetchDepth,
        give_back: Callable[[], None],
        finish: Callable[[Job, Batch], Batch],
    ) -> None:
        self._read = read
        self._transfer = transfer
        self._depth = depth
        self._give_back = give_back
        self._finish = finish

    def send(self, job: Job) -> Sent:
        """Load a batch and begin its way to the device."""
        batch = self._read(job)
        try:
            return self._transfer.send(batch)
        except RuntimeError as error:
            if not is_gpu_oom(error):
                raise
        # outside the except block: the traceback held what the failed copy had taken
        self._give_back()
        logger.warning(
            "epoch %d, batch %d: the device has no memory for another batch; loading %d ahead now",
            job.epoch,
            job.index,
            self._depth.halve(),
        )
        return Sent(batch, is_held_back=True)

    def receive(self, job: Job, sent: Sent) -> Batch:
        """Return a batch on the device; one that was held back gets its second try here."""
        if sent.is_held_back:
            self._give_back()
            sent = self._transfer.send(sent.batch)
        return self._finish(job, self._transfer.receive(sent))


@final
class DirectFeed(Feed):
    """Loads in the thread that takes."""

    def __init__(self, jobs: Jobs, sender: Sender[BatchJob]) -> None:
        self._jobs = jobs
        self._sender = sender
        self._job: BatchJob | None = None

    def claim(self) -> BatchJob | None:
        """Return the job that is next."""
        if self._job is None:
            self._job = self._jobs()
        return self._job

    def skip(self) -> None:
        """Drop the claimed job."""
        self._job = None

    def take(self) -> Batch | None:
        """Load and return the next batch."""
        if self.claim() is None or self._job is None:
            return None
        try:
            batch = self._sender.receive(self._job, self._sender.send(self._job))
        except Exception as error:
            raise self._job.failed(error) from error
        self._job = None
        return batch

    def refill(self) -> None:
        """Do nothing: nothing is loaded ahead."""

    def close(self, *, wait: bool) -> None:
        """Do nothing: nothing runs."""


@final
class StreamFeed(Feed):
    """Loads ahead in background threads.

    Args:
        jobs: What to load.
        sender: How.
        depth: How many ahead.
        workers: Threads.
        timeout: Seconds one batch may take.
    """

    def __init__(
        self,
        jobs: Jobs,
        sender: Sender[BatchJob],
        depth: PrefetchDepth,
        *,
        workers: int,
        timeout: float | None,
    ) -> None:
        self._sender = sender
        self._depth = depth
        self._is_stuck = False
        self._ahead: Lookahead[BatchJob, Sent] = Lookahead(
            sender.send, jobs, workers=workers, timeout=timeout
        )
        self.refill()

    def claim(self) -> BatchJob | None:
        """Return the job whose batch is next."""
        job = self._ahead.claim()
        if job is None:
            self.refill()
            job = self._ahead.claim()
        return job

    def skip(self) -> None:
        """Drop the claimed job; a load in progress comes to nothing."""
        self._ahead.skip()

    def take(self) -> Batch | None:
        """Return the next batch, once it is loaded."""
        self._depth.asked()
        job = self.claim()
        if job is None:
            return None
        try:
            sent = self._ahead.take()
            self.refill()
            return self._sender.receive(job, sent)
        except Exception as error:
            self._is_stuck = isinstance(error, DataStallError)
            raise job.failed(error) from error

    def refill(self) -> None:
        """Ask for batches up to the depth."""
        self._ahead.fill(max(1, self._depth.depth))

    def close(self, *, wait: bool) -> None:
        """Drop what was not taken and end the threads, after the loads in progress."""
        self._ahead.close(wait=wait and not self._is_stuck)


@final
class ResidentFeed(Feed):
    """Gathers from a set on the device, and goes on by streaming when memory for that runs out.

    Args:
        jobs: What to gather.
        gather: Forms the batch of a job on the device.
        stream: Drops the set and returns a feed of these jobs, told why; ``None`` when the set must
            stay.
    """

    def __init__(
        self,
        jobs: Jobs,
        gather: Callable[[BatchJob], Batch],
        stream: Callable[[Jobs, str], Feed] | None,
    ) -> None:
        self._jobs = jobs
        self._gather = gather
        self._stream = stream
        self._job: BatchJob | None = None
        self._instead: Feed | None = None

    def claim(self) -> BatchJob | None:
        """Return the job whose batch is next."""
        if self._instead is not None:
            return self._instead.claim()
        if self._job is None:
            self._job = self._jobs()
        return self._job

    def skip(self) -> None:
        """Drop the claimed job."""
        if self._instead is not None:
            self._instead.skip()
        self._job = None

    def take(self) -> Batch | None:
        """Return the next batch."""
        if self._instead is not None:
            return self._instead.take()
        if self.claim() is None or self._job is None:
            return None
        try:
            batch = self._gather(self._job)
        except Exception as error:
            if self._stream is None or not is_gpu_oom(error):
                raise self._job.failed(error) from error
            reason = str(error).partition("\n")[0]
        else:
            self._job = None
            return batch
        # outside the except block: the traceback held tensors of the set
        self._instead = self._stream(self._jobs_from_here(), reason)
        return self._instead.take()

    def _jobs_from_here(self) -> Jobs:
        waiting, jobs = [self._job], self._jobs
        self._job = None

        def rest() -> BatchJob | None:
            return waiting.pop() if waiting else jobs()

        return rest

    def refill(self) -> None:
        """Pass on what streams instead, if anything does."""
        if self._instead is not None:
            self._instead.refill()

    def close(self, *, wait: bool) -> None:
        """End what streams instead, if anything does."""
        if self._instead is not None:
            self._instead.close(wait=wait)
