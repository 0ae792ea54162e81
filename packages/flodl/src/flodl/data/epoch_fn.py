"""Data made anew for each epoch by a function: one epoch trains while the next one is made."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from flodl.core.errors import DataError, DataWorkerError, ResumeMismatchError
from flodl.core.units import format_eta
from flodl.data.assembly import transformed
from flodl.data.batch import Batch, check_names
from flodl.data.closing import Closing
from flodl.data.epoch import EpochIterator, EpochPlan, EpochProgress
from flodl.data.epoch_data import EpochFnConfig, Made
from flodl.data.feed import DirectFeed, ResidentFeed, Sender
from flodl.data.jobs import BatchJob, EpochJobs, EpochRows
from flodl.data.lookahead import Workers
from flodl.data.partition import Split
from flodl.data.prefetch import LEAST, PrefetchDepth
from flodl.data.residency import Decision, fits_gpu
from flodl.data.sampler import seeded_permutation, whole_number
from flodl.data.transfer import transfer_to, wait_for_current
from flodl.device import GpuEvent, GpuStream, StreamGuard, gpu_memory_info, parse_device

if TYPE_CHECKING:
    from concurrent.futures import Future

    from flodl.data.epoch_data import EpochData
    from flodl.data.feed import Feed

PINNED_BYTES = 256 << 20
SLOW_SWAP_S = 0.01

logger = logging.getLogger(__name__)


@final
class EpochFnLoader(Closing):
    """Batches of what ``fn(epoch)`` gives, made and moved while the epoch before trains.

    The rows of an epoch lie in one of two buffers on the device. With the same shapes in each epoch
    the buffers are written in place: ``buffers`` ``[2, N, ...]`` and ``active`` (which of the two)
    never move, and a captured step may read them.

    Args:
        fn: Called with each epoch in turn, in a background thread but for the first.
        config: How batches are formed.

    Raises:
        ConfigError: A device that is not here.
        DataWorkerError: ``fn(0)`` raised.
    """

    def __init__(self, fn: Callable[[int], EpochData], config: EpochFnConfig) -> None:
        self._fn = fn
        self._config = config
        self.device = parse_device(config.device)
        self._split = Split()
        self._workers: Workers[int, Made] = Workers(1, "flodl-epoch")
        self._copies = GpuStream(self.device)
        self._transfer = transfer_to(self.device, pin=False, max_pinned_bytes=PINNED_BYTES)
        self._next: Future[Made] | None = None
        self._progress: EpochProgress | None = None
        self._resumed: tuple[int, int] | None = None
        self._running: weakref.ref[EpochIterator] | None = None
        self._is_closed = False
        self.active = torch.zeros((), dtype=torch.int64, device=self.device)
        self._side = 0
        self.buffers: tuple[Tensor, ...] = ()
        self._made = self._make_now(0)
        self.names = check_names(config.names or self._made.names, len(self._made.tensors))
        self.decision = self._decide()
        self._install(self._made)
        self._prefetch(1)

    def _decide(self) -> Decision:
        if self.device.type != "cuda":
            return Decision(is_resident=True, reason=f"buffers on {self.device.type}")
        memory = gpu_memory_info(self.device)
        return fits_gpu(2 * self._made.n_bytes, memory, self._config.vram_max_usage)

    @property
    def is_resident(self) -> bool:
        """Whether both buffers lie on the device; batches are moved one by one otherwise."""
        return self.decision.is_resident

    @property
    def current_epoch(self) -> int:
        """Epoch whose data are in use."""
        return self._made.epoch

    @property
    def prefetch_ready(self) -> bool:
        """Whether the next epoch's data are made."""
        return self._next is not None and self._next.done()

    @property
    def num_batches(self) -> int:
        """Batches of the current epoch, on this rank."""
        plan = self._plan()
        return plan.batches(plan.part())

    def __len__(self) -> int:
        return self.num_batches

    def partition(self, rank: int, world_size: int) -> None:
        """Deliver one rank's rows of each epoch: ``fn`` gives the same data on all ranks."""
        self._split = Split(rank=rank, world_size=world_size)

    def _plan(self) -> EpochPlan:
        return EpochPlan(
            pending=((0, self._made.rows),),
            split=self._split,
            batch_size=self._config.batch_size,
            drop_last=self._config.drop_last,
        )

    def _make(self, epoch: int) -> Made:
        return Made(epoch, self._fn(epoch))

    def _make_now(self, epoch: int) -> Made:
        try:
            return self._make(epoch)
        except Exception as error:
            raise DataWorkerError(
                f"the function of epoch {epoch} raised {type(error).__name__}: {error}"
            ) from error

    def _prefetch(self, epoch: int) -> None:
        read = GpuEvent(timing=False, device=self.device)
        read.record()  # what was launched so far may still read the buffer of the epoch before
        self._next = self._workers.submit(self._maker(read), epoch)

    def _maker(self, read: GpuEvent) -> Callable[[int], Made]:
        """Return what makes an epoch and writes it into its buffer; it does not hold the loader."""
        fn, layout, is_resident = self._fn, self._made.layout, self.is_resident
        side, buffers = 1 - self._side, self.buffers
        copies, device = self._copies, self.device

        def make(epoch: int) -> Made:
            made = Made(epoch, fn(epoch))
            if is_resident and made.layout == layout:
                wait_for_current(copies)  # what the function gave may be on the GPU, and not done
                with StreamGuard(copies):
                    copies.wait_event(read)
                    for buffer, tensor in zip(buffers, made.tensors, strict=True):
                        needs_pin = device.type == "cuda" and tensor.device.type == "cpu"
                        source = tensor.pin_memory() if needs_pin else tensor
                        buffer[side].copy_(source, non_blocking=True)
                copies.synchronize()
            return made

        return make

    def _install(self, made: Made) -> None:
        """Put data into new buffers, on the side in use."""
        if not self.is_resident:
            return
        self.buffers = tuple(
            torch.empty((2, *tensor.shape), dtype=tensor.dtype, device=self.device)
            for tensor in made.tensors
        )
        for buffer, tensor in zip(self.buffers, made.tensors, strict=True):
            buffer[self._side].copy_(tensor)

    def advance_epoch(self) -> int:
        """Change to the next epoch's data, waiting until they are made, and return its number.

        The iterator of the epoch before goes stale: the buffer that it reads is written next.

        Raises:
            DataError: The loader is closed.
            DataWorkerError: The function raised for that epoch; it is called again the next time.
        """
        self._check_open()
        self._expire()
        epoch = self._made.epoch + 1
        begun = time.perf_counter()
        if self._next is None:
            self._prefetch(epoch)
        assert self._next is not None
        future, self._next = self._next, None
        try:
            made = future.result()
        except Exception as error:
            raise DataWorkerError(
                f"the function of epoch {epoch} raised {type(error).__name__}: {error}"
            ) from error
        waited = time.perf_counter() - begun
        if waited > SLOW_SWAP_S:
            logger.info("waited %s for the data of epoch %d", format_eta(waited), epoch)
        self._enter(made)
        self._prefetch(epoch + 1)
        return epoch

    def _enter(self, made: Made) -> None:
        is_same = made.layout == self._made.layout
        self._made = made
        self._side = 1 - self._side
        self.active.fill_(self._side)
        if not is_same:
            logger.warning(
                "epoch %d has other shapes than the one before: new buffers, and captured steps "
                "are captured again",
                made.epoch,
            )
            self._install(made)

    def epoch(self, number: int) -> EpochIterator:
        """Return the batches of one epoch; the iterator of an earlier one goes stale.

        The next epoch is the one that is made ahead; for any other the function is called now.

        Raises:
            ConfigError: A negative epoch.
            DataError: The loader is closed.
            DataWorkerError: The function raised.
        """
        whole_number("epoch", number, least=0)
        self._check_open()
        self._expire()
        if number == self._made.epoch + 1:
            self.advance_epoch()
        elif number != self._made.epoch:
            self._jump(number)
        return self._iterate(number)

    def _jump(self, epoch: int) -> None:
        if self._next is not None:
            self._next.cancel()
            self._settle(self._next)
        made = self._make_now(epoch)
        if made.layout == self._made.layout and self.is_resident:
            for buffer, tensor in zip(self.buffers, made.tensors, strict=True):
                buffer[1 - self._side].copy_(tensor)
        self._enter(made)
        self._prefetch(epoch + 1)

    def _settle(self, future: Future[Made]) -> None:
        """Wait until a call that nobody needs has left the buffer alone."""
        if not future.cancelled():
            future.exception()

    def _iterate(self, number: int) -> EpochIterator:
        rows = self._made.rows
        order = torch.arange(rows)
        if self._config.shuffle:
            order = seeded_permutation(rows, self._config.seed, number)
        skipped = 0
        if self._resumed is not None and self._resumed[0] == number:
            skipped = self._resumed[1]
        self._resumed = None
        progress = EpochProgress(epoch=number, order=order, plan=self._plan(), skipped=skipped)
        self._progress = progress
        mine = progress.samples
        visited = EpochRows(samples=mine, host=mine, device=mine.to(self.device))
        jobs = EpochJobs(visited, number, self._config.batch_size, progress.numbers, 0)
        iterator = EpochIterator(progress, self._feed(jobs))
        self._running = weakref.ref(iterator)
        return iterator

    def _feed(self, jobs: EpochJobs) -> Feed:
        names, transform = self.names, self._config.device_transform
        if self.is_resident:
            tensors = tuple(buffer[self._side] for buffer in self.buffers)
        else:
            tensors = self._made.tensors

        def gather(job: BatchJob) -> Batch:
            rows = job.rows.device if self.is_resident else job.rows.host
            assert rows is not None
            picked = rows[job.start : job.stop]
            parts = [tensor.index_select(0, picked.to(tensor.device)) for tensor in tensors]
            return Batch(parts, names, epoch=job.epoch, index=job.index)

        def finish(_: BatchJob, batch: Batch) -> Batch:
            return transformed("device_transform", transform, batch)

        if self.is_resident:
            return ResidentFeed(jobs, lambda job: finish(job, gather(job)), None)
        depth = PrefetchDepth(LEAST, None, LEAST)
        return DirectFeed(jobs, Sender(gather, self._transfer, depth, lambda: None, finish))

    def __iter__(self) -> EpochIterator:
        if self._resumed is not None:
            return self.epoch(self._resumed[0])
        is_first = self._progress is None
        return self.epoch(self._made.epoch + (0 if is_first else 1))

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the epoch, and how many of its batches the consumer took."""
        progress = self._progress
        epoch, batches = self._resumed or (
            (0, 0) if progress is None else (progress.epoch, progress.batches_taken)
        )
        return {
            "version": 1,
            "epoch": epoch,
            "batches": batches,
            "batch_size": self._config.batch_size,
            "seed": self._config.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position; ``fn`` is called for that epoch when it is iterated.

        Raises:
            ResumeMismatchError: Other keys, or another batch size or seed.
        """
        here = self.state_dict()
        if set(state) != set(here):
            raise ResumeMismatchError(f"keys: the state has {sorted(state)}, not {sorted(here)}")
        for field in ("version", "batch_size", "seed"):
            if state[field] != here[field]:
                raise ResumeMismatchError(
                    f"{field}: the state was saved with {state[field]!r}, this loader has "
                    f"{here[field]!r}"
                )
        self._expire()
        self._resumed = (state["epoch"], state["batches"])

    def _check_open(self) -> None:
        if self._is_closed:
            raise DataError("this loader is closed", hint="build another loader")

    def _expire(self) -> None:
        running = self._running() if self._running is not None else None
        if running is not None:
            running.expire()
        self._running = None

    def close(self) -> None:
        """End the background thread after the call in progress; the loader is of no more use."""
        self._expire()
        self._workers.close(wait_s=None)
        self._is_closed = True
