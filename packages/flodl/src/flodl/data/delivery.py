"""How the batches of one loader reach their device: held there whole, or streamed to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from flodl.core.errors import ConfigError
from flodl.data.adapter import as_batch_dataset
from flodl.data.assembly import Assembly, CollatedSource, transformed
from flodl.data.batch import Batch, check_names
from flodl.data.compose import InMemoryView
from flodl.data.dataset import is_fixed
from flodl.data.feed import DirectFeed, ResidentFeed, Sender, StreamFeed
from flodl.data.jobs import EpochRows
from flodl.data.prefetch import LEAST, PrefetchDepth, fitting_depth
from flodl.data.processes import ProcessReaders
from flodl.data.residency import Decision, decide, host_memory
from flodl.data.resident import DeviceStore, ResidentSource, StorePlan, load_rows
from flodl.data.storage import StoredSource
from flodl.data.streaming import FetchSource
from flodl.data.transfer import transfer_to
from flodl.device import gpu_empty_cache, gpu_memory_info, gpu_peak_active_bytes, is_gpu_oom

if TYPE_CHECKING:
    from torch import Tensor

    from flodl.data.assembly import Source
    from flodl.data.config import LoaderConfig
    from flodl.data.dataset import AnyDataSet
    from flodl.data.feed import Feed, Jobs
    from flodl.data.jobs import BatchJob
    from flodl.data.transfer import Transfer

GIB = 1 << 30
PINNED_SHARE = 0.05

logger = logging.getLogger(__name__)


class Delivery:
    """Owns what serves all epochs of a loader: the set on the device, or the way there.

    Args:
        dataset: What is delivered.
        config: How.
        device: Where to.
        num_batches: Batches of an epoch.
    """

    def __init__(
        self, dataset: AnyDataSet, config: LoaderConfig, device: torch.device, num_batches: int
    ) -> None:
        self._config = config
        self.device = device
        self._num_batches = num_batches
        self._length = len(as_batch_dataset(dataset))
        self.source = _source_of(dataset, config)
        self.names = check_names(config.names or self.source.names, self.source.count)
        if config.storage_dtype is not None:
            self.source = StoredSource(self.source, self.names, config.storage_dtype)
        self._origin = self.source
        self.store: DeviceStore | None = None
        self._held = range(0)
        self.decision = decide(self.source, self._length, config, device, fixed=is_fixed(dataset))
        if self.decision.is_resident and config.resident != "partition":
            self._load(range(self._length))
        self._transfer = self._new_transfer()
        self.depth = self._new_depth()
        self._assembly = Assembly(self.source, self.names, config.transform)
        self._processes = (
            ProcessReaders(self._assembly, config.workers, config.seed)
            if config.worker_mode == "process"
            else None
        )

    @property
    def is_resident(self) -> bool:
        """Whether the whole set lies in the memory of the device that batches arrive on."""
        return self.decision.is_resident

    def hold(self, samples: range) -> None:
        """Keep these samples and no others, when this loader keeps a part only.

        Raises:
            DataWorkerError: One cannot be read.
            torch.OutOfMemoryError: The device has no room.
        """
        if self._config.resident != "partition" or samples == self._held:
            return
        self.store, self.source, self._held = None, self._origin, range(0)
        self._give_back()
        self._load(samples)
        self._held = samples
        self.depth = self._new_depth()
        self._assembly = Assembly(self.source, self.names, self._config.transform)

    def _load(self, samples: range) -> None:
        """Load samples where they are not there yet; when memory runs out, stream instead."""
        on_host = self.device.type == "cpu"
        if on_host and self.source.is_in_memory:
            return
        if self._config.transform is not None and not on_host:
            raise ConfigError(
                f"resident={self._config.resident!r} with transform: a set on the device has no "
                "batches on the CPU",
                hint="use device_transform, or streaming",
            )
        plan = StorePlan(self.source, samples, self.device)
        try:
            if on_host:
                view = InMemoryView(tensors=load_rows(plan, self.device), path=())
                self.source = ResidentSource(view, self.source.names, samples.start)
            else:
                self.store = DeviceStore(plan, self.device)
            return
        except Exception as error:
            if self._config.resident or not is_gpu_oom(error):
                raise
            reason = str(error).partition("\n")[0]
        # outside the except block: the traceback held what had been loaded
        self._lose_store(f"while it was loaded: {reason}")

    def _new_transfer(self) -> Transfer:
        limit = self._config.max_pinned_bytes
        if limit is None and self.device.type == "cuda":
            limit = min(GIB, int(PINNED_SHARE * host_memory()[1]))
        return transfer_to(self.device, pin=self._config.pin, max_pinned_bytes=limit or 0)

    def _lose_store(self, reason: str) -> None:
        self.store = None
        self._give_back()
        self.decision = Decision(is_resident=False, reason="the device ran out of memory")
        logger.warning(
            "the data set of %d samples does not stay on %s, which ran out of memory %s; batches "
            "are streamed from now on",
            self._length,
            self.device,
            reason,
        )

    def _give_back(self) -> None:
        if self.device.type == "cuda":
            gpu_empty_cache()

    def _new_depth(self) -> PrefetchDepth:
        config = self._config
        if self.is_resident and self.device.type != "cpu":
            return PrefetchDepth(config.prefetch or 0, None, 0)
        if self.device.type == "cuda":
            return PrefetchDepth(config.prefetch, self._measure_depth, LEAST)
        needs_thread = not self.source.is_in_memory or config.timeout or config.streaming
        is_slow = config.worker_mode == "process" or config.workers > 1
        automatic = max(LEAST, 2 * config.workers) if needs_thread or is_slow else 0
        return PrefetchDepth(config.prefetch, None, automatic)

    def _measure_depth(self) -> int:
        memory = gpu_memory_info(self.device)
        reserve = self._config.activation_reserve
        if reserve is None:
            reserve = max(0, gpu_peak_active_bytes(self.device) - memory.allocated)
        return fitting_depth(
            memory,
            cap=self._config.vram_max_usage,
            reserve=reserve,
            batch_bytes=self.source.sample_bytes * self._config.batch_size,
            num_batches=self._num_batches,
        )

    def begin(self, samples: Tensor, *, in_place: bool = True) -> EpochRows:
        """Return the rows to visit for these samples, put onto the device when the set is there.

        Args:
            samples: Indices of the data set, in order.
            in_place: Whether they take the place of the order before.
        """
        rows = EpochRows(samples=samples, host=self.source.place(samples))
        if self.store is not None:
            self.store.begin(rows, in_place=in_place)
        return rows

    def feed(self, jobs: Jobs) -> Feed:
        """Return where to take the batches of these jobs; it begins to load them."""
        if self.store is None:
            self.depth.begin_epoch()
            return self._streamed(jobs)
        stream = None if self._config.resident else self._stream_instead
        return ResidentFeed(jobs, self._gather, stream)

    def _gather(self, job: BatchJob) -> Batch:
        assert self.store is not None
        tensors = self.store.gather(job)
        return self._finished(job, Batch(tensors, self.names, epoch=job.epoch, index=job.index))

    def _stream_instead(self, jobs: Jobs, reason: str) -> Feed:
        if self.store is not None:
            self._lose_store(f"while a batch was gathered: {reason}")
            self.depth = self._new_depth()
        return self._streamed(jobs)

    def _streamed(self, jobs: Jobs) -> Feed:
        read = self._read
        if self._processes is not None:
            self._processes.start()
            read = self._processes.read
        sender = Sender(read, self._transfer, self.depth, self._give_back, self._finished)
        if not self.depth.depth:
            return DirectFeed(jobs, sender)
        config = self._config
        return StreamFeed(jobs, sender, self.depth, workers=config.workers, timeout=config.timeout)

    def _read(self, job: BatchJob) -> Batch:
        return self._assembly(job, self._transfer.empty)

    def _finished(self, job: BatchJob, batch: Batch) -> Batch:
        done = transformed("device_transform", self._config.device_transform, batch)
        done.lease_id, done.ranges = job.lease_id, job.ranges
        return done

    def abort(self) -> None:
        """End child processes at once, so that no thread waits for one that is stuck."""
        if self._processes is not None:
            self._processes.kill()

    def close(self) -> None:
        """Let go of the set and end child processes."""
        self.abort()
        self.store = None


def _source_of(dataset: AnyDataSet, config: LoaderConfig) -> Source:
    if config.collate is not None:
        return CollatedSource(dataset, config.collate)
    return ResidentSource.of(dataset) or FetchSource(as_batch_dataset(dataset))
