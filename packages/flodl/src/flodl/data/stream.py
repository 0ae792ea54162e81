"""Loaders of sources that can only be read from front to back."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, final

from flodl.core.errors import (
    DataError,
    DataStallError,
    DataWorkerError,
    ResumeMismatchError,
    StaleIteratorError,
)
from flodl.data.assembly import transformed
from flodl.data.closing import Closing
from flodl.data.feed import Sender
from flodl.data.lookahead import Lookahead
from flodl.data.prefetch import LEAST, PrefetchDepth
from flodl.data.sampler import whole_number
from flodl.data.streamprocesses import ProcessStream
from flodl.data.streamstate import BatchStream, StreamConfig, StreamItem, StreamState
from flodl.data.transfer import transfer_to
from flodl.device import gpu_empty_cache, parse_device

if TYPE_CHECKING:
    from flodl.data.batch import Batch
    from flodl.data.transfer import Sent

PINNED_BYTES = 256 << 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A batch of a stream with its place, ready to be sent."""

    epoch: int
    index: int
    item: StreamItem

    def failed(self, error: Exception) -> DataWorkerError:
        return _failed(self.epoch, self.index, error)


def _failed(epoch: int, index: int, error: Exception) -> DataWorkerError:
    return DataWorkerError(f"epoch {epoch}, batch {index}: {type(error).__name__}: {error}")


@final
class StreamLoader(Closing):
    """Batches of a stream: ``for batch in loader.epoch(0)``; how many is not known before.

    Made by ``DataLoader.from_iterable``, ``DataLoader.wrap`` and ``DataLoader.from_hf``.

    Args:
        stream: Where the batches come from.
        config: How they are delivered.
    """

    num_batches = None

    def __init__(self, stream: BatchStream, config: StreamConfig) -> None:
        self._stream = ProcessStream(stream, config.workers) if config.workers else stream
        self._config = config
        self.device = parse_device(config.device)
        self._transfer = transfer_to(self.device, pin=config.pin, max_pinned_bytes=PINNED_BYTES)
        self._depth = PrefetchDepth(config.prefetch, None, LEAST)
        self._rank, self._world_size = 0, 1
        self._next_epoch = 0
        self._state: StreamState | None = None
        self._resumed: StreamState | None = None
        self._running: weakref.ref[StreamIterator] | None = None
        self._is_closed = False

    is_resident = False

    @property
    def is_distributed(self) -> bool:
        """Whether an epoch is shared with other ranks."""
        return self._world_size > 1

    @property
    def prefetch_depth(self) -> int:
        """Batches loaded ahead by a background thread; 0 when there is none."""
        return self._depth.depth

    def partition(self, rank: int, world_size: int) -> None:
        """Deliver one rank's part of each epoch, from the next one on."""
        self._world_size = whole_number("world_size", world_size, least=1)
        self._rank = whole_number("rank", rank, least=0, below=world_size)

    def epoch(self, number: int) -> StreamIterator:
        """Return the batches of one epoch; the iterator of an earlier one goes stale.

        After ``load_state_dict`` the epoch that was interrupted yields what is left of it.

        Raises:
            ConfigError: A negative epoch.
            DataError: The loader is closed.
        """
        whole_number("epoch", number, least=0)
        if self._is_closed:
            raise DataError(f"epoch({number}): this loader is closed", hint="build another loader")
        self._expire()
        start, self._resumed = self._resumed, None
        if start is not None and start.epoch != number:
            start = None
        self._state = start or self._fresh(number)
        self._next_epoch = number + 1
        batches = (
            iter(())
            if start is not None and start.is_complete
            else self._stream.open(number, self._rank, self._world_size, start)
        )
        iterator = StreamIterator(self, batches, self._state)
        self._running = weakref.ref(iterator)
        return iterator

    def _fresh(self, epoch: int) -> StreamState:
        return StreamState(
            epoch=epoch,
            batches=0,
            samples=0,
            is_complete=False,
            rank=self._rank,
            world_size=self._world_size,
            settings=self._stream.settings,
            source=None,
        )

    def __iter__(self) -> StreamIterator:
        return self.epoch(self._next_epoch)

    def reached(self, state: StreamState) -> None:
        """Note what the consumer took; called by the iterator."""
        self._state = state

    def sender(self) -> Sender[_Loaded]:
        """Return what moves batches to the device."""
        config = self._config

        def finish(_: _Loaded, batch: Batch) -> Batch:
            return transformed("device_transform", config.device_transform, batch)

        return Sender(_read_through(config), self._transfer, self._depth, _give_back, finish)

    def abort(self) -> None:
        """End child processes at once, so that no thread waits for one that is stuck."""
        if isinstance(self._stream, ProcessStream):
            self._stream.abort()

    @property
    def timeout(self) -> float | None:
        """Seconds that one batch may take."""
        return self._config.timeout

    def _expire(self) -> None:
        running = self._running() if self._running is not None else None
        if running is not None:
            running.expire()
        self._running = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position: which batches the consumer took, not which were loaded ahead."""
        state = self._resumed or self._state or self._fresh(self._next_epoch)
        return asdict(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position: its epoch yields exactly the batches not yet taken.

        A source without a state of its own is read from the front again, up to the position.

        Raises:
            ResumeMismatchError: The state belongs to another stream or other settings.
        """
        saved, here = StreamState.from_dict(state), self._fresh(0)
        for field in ("rank", "world_size"):
            if getattr(saved, field) != getattr(here, field):
                raise ResumeMismatchError(
                    f"{field}: the state was saved with {getattr(saved, field)!r}, this loader has "
                    f"{getattr(here, field)!r}",
                    hint="a stream can only be gone on with by as many ranks",
                )
        for name in sorted(saved.settings.keys() | here.settings.keys()):
            was, now = saved.settings.get(name), here.settings.get(name)
            if was != now:
                raise ResumeMismatchError(
                    f"{name}: the state was saved with {was!r}, this loader has {now!r}"
                )
        self._expire()
        self._resumed = saved if saved.batches or saved.is_complete else None
        self._state = None
        self._next_epoch = saved.epoch + 1 if saved.is_complete else saved.epoch

    def close(self) -> None:
        """End the running epoch and its thread; the loader cannot be used again."""
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()
        self._running = None
        self.abort()
        self._is_closed = True


def _read_through(config: StreamConfig) -> Any:
    def read(loaded: _Loaded) -> Batch:
        return transformed("transform", config.transform, loaded.item.batch)

    return read


def _give_back() -> None:
    gpu_empty_cache()


class StreamIterator:
    """Batches of one epoch of a stream, until it ends.

    It may be left at any point. It ends after an error, and goes stale when its loader starts
    another epoch.
    """

    def __init__(
        self, loader: StreamLoader, batches: Iterator[StreamItem], start: StreamState
    ) -> None:
        self._loader = loader
        self._state = start
        self._is_stale = False
        self._sender = loader.sender()
        reader = _Reader(batches, start, self._sender)
        depth = loader.prefetch_depth
        numbers = itertools.count(start.batches)
        self._depth = depth
        self._reader: _Reader | None = reader
        self._ahead: Lookahead[int, tuple[_Loaded, Sent] | None] | None = None
        if depth:
            self._ahead = Lookahead(reader.load, numbers.__next__, timeout=loader.timeout)
            self._ahead.fill(depth)

    def __iter__(self) -> StreamIterator:
        return self

    def __next__(self) -> Batch:
        if self._is_stale:
            raise StaleIteratorError(
                f"epoch {self._state.epoch}: this iterator ended when its loader started another "
                "epoch",
                hint="use one loader for each loop that runs at the same time",
            )
        if self._reader is None:
            raise StopIteration
        try:
            batch = self._next()
        except Exception as error:
            if isinstance(error, DataStallError):
                self._loader.abort()
            self._drop(wait=not isinstance(error, DataStallError))
            raise
        if batch is None:
            self._reach(is_complete=True)
            self._drop(wait=True)
            raise StopIteration
        return batch

    def _next(self) -> Batch | None:
        if self._ahead is not None:
            loaded = self._ahead.take()
            self._ahead.fill(self._depth)
        else:
            assert self._reader is not None
            loaded = self._reader.load(self._state.batches)
        if loaded is None:
            return None
        job, sent = loaded
        try:
            batch = self._sender.receive(job, sent)
        except Exception as error:
            raise job.failed(error) from error
        self._reach(batches=job.index + 1, samples=job.item.samples, source=job.item.source)
        return batch

    def _reach(self, **changes: Any) -> None:
        values = {field.name: getattr(self._state, field.name) for field in fields(self._state)}
        self._state = StreamState(**{**values, **changes})
        self._loader.reached(self._state)

    def close(self) -> None:
        """End the iteration: no batches are left, and no background thread runs."""
        self._drop(wait=True)

    def expire(self) -> None:
        """Make every further batch raise ``StaleIteratorError``."""
        self._is_stale = self._reader is not None
        self._drop(wait=False)

    def _drop(self, *, wait: bool) -> None:
        self._reader = None
        if self._ahead is not None:
            self._ahead.close(wait=wait)
            self._ahead = None


class _Reader:
    """Reads a stream in one thread and begins to move its batches; ends after an error."""

    def __init__(
        self, batches: Iterator[StreamItem], start: StreamState, sender: Sender[_Loaded]
    ) -> None:
        self._batches: Iterator[StreamItem] | None = batches
        self._epoch = start.epoch
        self._sender = sender

    def load(self, index: int) -> tuple[_Loaded, Sent] | None:
        """Return the next batch on its way, ``None`` after the last."""
        if self._batches is None:
            return None
        try:
            item = next(self._batches, None)
            if item is None:
                self._batches = None
                return None
            job = _Loaded(self._epoch, index, item)
            return job, self._sender.send(job)
        except Exception as error:
            self._batches = None
            raise _failed(self._epoch, index, error) from error
