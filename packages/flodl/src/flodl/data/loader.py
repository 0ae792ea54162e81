"""The loader: batches of a data set, epoch by epoch, in an order anyone can repeat."""

from __future__ import annotations

import logging
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from flodl.core.errors import ConfigError, DataError
from flodl.core.units import format_bytes
from flodl.data.adapter import as_batch_dataset
from flodl.data.batch import Batch, check_names
from flodl.data.builder import DataLoaderBuilder
from flodl.data.compose import InMemoryView
from flodl.data.config import LoaderConfig
from flodl.data.epoch import EpochIterator, batch_count
from flodl.data.position import Position
from flodl.data.resident import ResidentSource
from flodl.data.resume import LoaderState
from flodl.data.sampler import whole_number
from flodl.data.streaming import FetchSource
from flodl.device import parse_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Unpack

    import torch

    from flodl.data.config import BatchTransform, LoaderOptions
    from flodl.data.dataset import AnyDataSet, BatchDataSet
    from flodl.data.epoch import EpochProgress, Source

AUTO_PREFETCH = 2

logger = logging.getLogger(__name__)


class DataLoader:
    """Batches of a data set: ``for batch in loader.epoch(0)``.

    Data sets that are tensors in memory are gathered from directly; others are read through
    ``get_batch`` or sample by sample, by default in a background thread.

    Args:
        dataset: A ``DataSet``, a ``BatchDataSet`` or any map-style data set of torch.
        options: The fields of ``LoaderConfig``; ``batch_size`` is required.

    Raises:
        ConfigError: An empty data set, an unknown option, or a value outside its range.
        DataWorkerError: Sample 0 cannot be read.

    Examples:
        >>> import torch
        >>> from flodl.data import DataLoader, TensorDataSet
        >>> data = TensorDataSet(image=torch.rand(10, 3), label=torch.arange(10))
        >>> loader = DataLoader(data, batch_size=4)
        >>> [tuple(batch["image"].shape) for batch in loader.epoch(0)]
        [(4, 3), (4, 3)]
    """

    def __init__(self, dataset: AnyDataSet, **options: Unpack[LoaderOptions]) -> None:
        config = LoaderConfig.from_options(options)
        batches = as_batch_dataset(dataset)
        self._length = len(batches)
        if not self._length:
            raise ConfigError("the data set is empty: a loader needs one sample or more")
        self._config = config
        self._device = parse_device(config.device)
        self._source = _source_of(dataset, batches)
        self._names = check_names(config.names or self._source.names, self._source.count)
        self._position = Position(config, self._length)
        self._depth = config.prefetch
        self._iterator: weakref.ref[EpochIterator] | None = None
        self._is_closed = False
        logger.info("%s", self.summary())
        if not self.num_batches:
            logger.warning(
                "batch_size=%d is more than the %d samples of an epoch and drop_last is on: epochs "
                "have no batches; use a smaller batch_size or drop_last=False",
                config.batch_size,
                self.num_samples,
            )

    @classmethod
    def from_dataset(cls, dataset: AnyDataSet) -> DataLoaderBuilder:
        """Return a builder for a loader of any data set."""
        return DataLoaderBuilder(partial(cls, dataset))

    @classmethod
    def from_batch_dataset(cls, dataset: BatchDataSet) -> DataLoaderBuilder:
        """Return a builder for a loader of a data set that gives whole batches.

        Raises:
            TypeError: The data set has no ``get_batch``.
        """
        if not hasattr(dataset, "get_batch"):
            raise TypeError(
                f"{type(dataset).__name__} has no get_batch(indices): use DataLoader.from_dataset"
            )
        return cls.from_dataset(dataset)

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self._config.batch_size

    @property
    def device(self) -> torch.device:
        """Where batches arrive."""
        return self._device

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors of a batch, before any transform."""
        return self._names

    @property
    def num_samples(self) -> int:
        """Samples that an epoch visits, those of a dropped last batch included."""
        return len(self._position.sampler)

    @property
    def num_batches(self) -> int:
        """Batches of a whole epoch."""
        config = self._config
        return batch_count(self.num_samples, config.batch_size, drop_last=config.drop_last)

    def __len__(self) -> int:
        return self.num_batches

    @property
    def is_resident(self) -> bool:
        """Whether the whole set lies in the memory of the device that batches arrive on."""
        return self._source.is_in_memory and self._device.type == "cpu"

    @property
    def prefetch_depth(self) -> int:
        """Batches loaded ahead by a background thread; 0 when there is none."""
        if self._depth is not None:
            return self._depth
        return 0 if self._source.is_in_memory else AUTO_PREFETCH

    def set_prefetch_depth(self, depth: int) -> None:
        """Load ``depth`` batches ahead from the next epoch on; 0 stops using a thread."""
        self._depth = whole_number("depth", depth, least=0)

    def epoch(self, number: int) -> EpochIterator:
        """Return the batches of one epoch; the iterator of an earlier one goes stale.

        After ``load_state_dict`` the epoch that was interrupted yields what is left of it.

        Raises:
            ConfigError: A negative epoch.
            DataError: The loader is closed.
            SamplerError: The sampler gave an order that does not fit the data set.
        """
        whole_number("epoch", number, least=0)
        if self._is_closed:
            raise DataError(f"epoch({number}): this loader is closed", hint="build another loader")
        self._expire()
        progress = self._position.begin(number)
        iterator = EpochIterator(
            progress, self._load_function(progress), self._finish(), self.prefetch_depth
        )
        self._iterator = weakref.ref(iterator)
        return iterator

    def __iter__(self) -> EpochIterator:
        return self.epoch(self._position.next_epoch)

    def _load_function(self, progress: EpochProgress) -> Callable[[int], Batch]:
        """Return what loads a batch by number; it may not hold the loader, nor the iterator."""
        gather, names, transform = self._source.gather, self._names, self._config.transform
        rows = self._source.place(progress.order)[progress.first_sample :]
        size, epoch, first = progress.batch_size, progress.epoch, progress.first_batch

        def load(number: int) -> Batch:
            start = number * size
            tensors = gather(rows[start : start + size])
            batch = Batch(tensors, names, epoch=epoch, index=first + number)
            return batch if transform is None else _transformed("transform", transform, batch)

        return load

    def _finish(self) -> Callable[[Batch], Batch] | None:
        device, transform = self._device, self._config.device_transform
        if device.type == "cpu" and transform is None:
            return None

        def finish(batch: Batch) -> Batch:
            moved = batch if device.type == "cpu" else batch.to(device)
            return (
                moved if transform is None else _transformed("device_transform", transform, moved)
            )

        return finish

    def _expire(self) -> None:
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None:
            iterator.expire()
        self._iterator = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position: which batches the consumer took, not which were loaded ahead.

        The values are plain. Saved after a batch has been used, the state leads to the next one.
        """
        return self._position.state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Continue from a saved position: its epoch yields exactly the batches not yet taken.

        That is none when the epoch had been finished; iterating over the loader then begins the
        next one. Any other epoch is whole.

        Args:
            state: What ``state_dict`` returned.
            strict: Whether ``batch_size`` and ``drop_last`` must be the same; otherwise the epoch
                goes on from the same sample with this loader's own.

        Raises:
            ResumeMismatchError: The state belongs to other data, another order or other settings.
        """
        self._position.load(LoaderState.from_dict(state), strict=strict)
        self._expire()

    def summary(self) -> str:
        """Return one line on what the loader does: samples, memory, batches, order, thread."""
        config = self._config
        where = "in memory" if self._source.is_in_memory else "fetched"
        total = format_bytes(self._source.sample_bytes * self._length)
        position = self._position
        sampler = type(position.sampler).__name__
        order = f"seed {config.seed}" if position.is_shuffled else sampler
        last = "dropped" if config.drop_last else "kept"
        ahead = f"{self.prefetch_depth} ahead" if self.prefetch_depth else "in the caller's thread"
        return (
            f"{self._length} samples {where} ({total}), {self.num_batches} batches of "
            f"{config.batch_size} to {self._device}, partial batch {last}, order: {order}, "
            f"loaded {ahead}"
        )

    def close(self) -> None:
        """End the running epoch and its thread; the loader cannot be used again."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None:
            iterator.close()
        self._iterator = None
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _source_of(dataset: AnyDataSet, batches: BatchDataSet) -> Source:
    view = InMemoryView.of(dataset)
    if view is None:
        return FetchSource(batches)
    return ResidentSource(view, dataset)


def _transformed(name: str, transform: BatchTransform, batch: Batch) -> Batch:
    result: object = transform(batch)
    if not isinstance(result, Batch):
        raise TypeError(f"{name} returned a {type(result).__name__}: expected a flodl.data.Batch")
    return result
