"""Iterables and generators as streams of batches: sharded, shuffled in a buffer, resumable."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from flodl.core.errors import ConfigError
from flodl.data.sampler import check_seed, mix, whole_number
from flodl.data.stack import Stacker, as_batch
from flodl.data.streamstate import StreamItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.data.config import Collate
    from flodl.data.streamstate import StreamState

Factory: TypeAlias = "Callable[[], Iterable[Any]] | Iterable[Any]"

SKIPS_TOLD = 100_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class IterableConfig:
    """How samples of an iterable become batches.

    Raises:
        ConfigError: A value outside its range.
    """

    batch_size: int
    """Rows of a batch."""
    shuffle_buffer: int = 0
    """Samples held back from which the next one is drawn; 0 keeps the order of the source."""
    seed: int = 42
    """Base of the draws from the buffer."""
    drop_last: bool = True
    """Whether a last batch with fewer rows is left out."""
    names: Sequence[str] | None = None
    """Names of the tensors; ``None`` takes the keys of dict samples, else "0", "1", ..."""
    collate: Collate | None = None
    """Called with the list of samples of a batch in place of stacking them."""
    sharded: bool = False
    """Whether the source gives each rank its own samples already."""

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, least=1)
        whole_number("shuffle_buffer", self.shuffle_buffer, least=0)
        check_seed(self.seed)


class IterableStream:
    """Batches of an iterable.

    A source may have ``set_epoch(epoch)``, ``shard_for_rank(rank, world_size)``, and ``state_dict``
    with ``load_state_dict``; they are used where they are.

    Args:
        factory: Called for each epoch, or an object that can be iterated over in each.
        config: How batches are formed.
    """

    def __init__(self, factory: Factory, config: IterableConfig) -> None:
        self._factory = factory
        self._config = config
        self._stacker = Stacker(config.names, config.collate)
        self._last: Iterator[Any] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Batch size and shuffle."""
        config = self._config
        return {
            "batch_size": config.batch_size,
            "shuffle_buffer": config.shuffle_buffer,
            "seed": config.seed,
            "drop_last": config.drop_last,
        }

    def open(
        self, epoch: int, rank: int, world_size: int, start: StreamState | None
    ) -> Iterator[StreamItem]:
        """Return the batches of one rank, those after ``start`` when it is given.

        Raises:
            ConfigError: The source can be read only once, and has been.
        """
        source = self._source(epoch)
        shards_itself = self._config.sharded or hasattr(source, "shard_for_rank")
        if hasattr(source, "shard_for_rank"):
            source.shard_for_rank(rank, world_size)
        goes_on = start is not None and start.source is not None
        if start is not None and start.source is not None:
            source.load_state_dict(start.source)
        samples = self._fresh_iterator(source, epoch)
        if not shards_itself and world_size > 1:
            samples = _every(samples, rank, world_size)
        if self._config.shuffle_buffer > 1:
            samples = _shuffled(samples, self._config.shuffle_buffer, self._config.seed, epoch)
        done = 0 if start is None else start.samples
        if done and not goes_on:
            _skip(samples, done)
        state = getattr(source, "state_dict", None) if self._config.shuffle_buffer < 2 else None
        first = 0 if start is None else start.batches
        return self._batches(samples, epoch, first, done, state)

    def _source(self, epoch: int) -> Any:
        is_function = callable(self._factory) and not hasattr(self._factory, "__iter__")
        if hasattr(self._factory, "set_epoch"):
            self._factory.set_epoch(epoch)
        source: Any = self._factory() if is_function else self._factory  # type: ignore[operator]
        if is_function and hasattr(source, "set_epoch"):
            source.set_epoch(epoch)
        if not hasattr(source, "__iter__"):
            made = "the factory gave" if is_function else "from_iterable was given"
            raise TypeError(
                f"epoch {epoch}: {made} a {type(source).__name__}: expected an iterable"
            )
        return source

    def _fresh_iterator(self, source: Any, epoch: int) -> Iterator[Any]:
        samples: Iterator[Any] = iter(source)
        if samples is self._last:
            raise ConfigError(
                f"epoch {epoch}: {type(source).__name__} can be read only once, and has been",
                hint="give from_iterable a function that returns a new iterable",
            )
        self._last = samples
        return samples

    def _batches(
        self,
        samples: Iterator[Any],
        epoch: int,
        index: int,
        done: int,
        state: Callable[[], dict[str, Any]] | None,
    ) -> Iterator[StreamItem]:
        size = self._config.batch_size
        while True:
            rows = list(itertools.islice(samples, size))
            if not rows or (len(rows) < size and self._config.drop_last):
                return
            batch = self._stacker.form(rows, done, epoch=epoch, index=index)
            done += len(rows)
            yield StreamItem(batch=batch, samples=done, source=None if state is None else state())
            index += 1


def _every(samples: Iterator[Any], rank: int, world_size: int) -> Iterator[Any]:
    for number, sample in enumerate(samples):
        if number % world_size == rank:
            yield sample


def _shuffled(samples: Iterator[Any], size: int, seed: int, epoch: int) -> Iterator[Any]:
    """Yield the samples, each drawn from the next ``size``; the same for a seed and epoch."""
    generator = torch.Generator().manual_seed(mix(seed, epoch))
    held: list[Any] = []
    for sample in samples:
        if len(held) < size:
            held.append(sample)
            continue
        place = int(torch.randint(size, (), generator=generator))
        yield held[place]
        held[place] = sample
    for place in torch.randperm(len(held), generator=generator).tolist():
        yield held[place]


def _skip(samples: Iterator[Any], count: int) -> None:
    logger.warning(
        "resuming a stream that keeps no position: reading over %d samples that were taken", count
    )
    for number, _ in enumerate(samples, 1):
        if number % SKIPS_TOLD == 0:
            logger.info("read over %d of %d samples", number, count)
        if number == count:
            return


class TorchLoaderStream:
    """Batches of a loader of torch, as it forms them; the position is their number.

    Args:
        loader: A ``torch.utils.data.DataLoader``, or anything that yields batches each time it is
            iterated over.
        names: Names of the tensors; ``None`` takes dict keys, else "0", "1", ...
    """

    def __init__(self, loader: Iterable[Any], names: Sequence[str] | None) -> None:
        self._loader = loader
        self._names = names

    @property
    def settings(self) -> dict[str, Any]:
        """The batch size, where the loader has one."""
        return {"batch_size": getattr(self._loader, "batch_size", None)}

    def open(
        self, epoch: int, rank: int, world_size: int, start: StreamState | None
    ) -> Iterator[StreamItem]:
        """Return the batches after ``start``.

        Raises:
            ConfigError: More than one rank: torch's own samplers share the data there.
        """
        if world_size > 1:
            raise ConfigError(
                f"partition({rank}, {world_size}) of a wrapped loader: its sampler decides",
                hint="give that loader a torch DistributedSampler, and do not call partition",
            )
        loader: Any = self._loader
        for part in (loader, *(getattr(loader, name, None) for name in _SAMPLERS)):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        batches = iter(self._loader)
        if start is not None:
            _skip(batches, start.batches)
        return self._items(batches, epoch, start)

    def _items(
        self, batches: Iterator[Any], epoch: int, start: StreamState | None
    ) -> Iterator[StreamItem]:
        done = 0 if start is None else start.samples
        for index, formed in enumerate(batches, 0 if start is None else start.batches):
            batch = as_batch(formed, self._names, epoch=epoch, index=index)
            done += batch.size
            yield StreamItem(batch=batch, samples=done)


_SAMPLERS = ("sampler", "batch_sampler")
