"""The loader: batches of a data set, epoch by epoch, in an order anyone can repeat."""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, final

from flodl.core.errors import ConfigError, DataError
from flodl.data.adapter import as_batch_dataset
from flodl.data.builder import DataLoaderBuilder
from flodl.data.closing import Closing
from flodl.data.config import LoaderConfig, split_options
from flodl.data.delivery import Delivery
from flodl.data.epoch import EpochIterator
from flodl.data.epoch_data import EpochFnConfig
from flodl.data.epoch_fn import EpochFnLoader
from flodl.data.huggingface import HfDataSet, HfStream
from flodl.data.iterable import IterableConfig, IterableStream, TorchLoaderStream
from flodl.data.jobs import EpochJobs
from flodl.data.leases import LeaseFeed
from flodl.data.partition import Split, split_of
from flodl.data.position import Position
from flodl.data.resume import LoaderState
from flodl.data.sampler import whole_number
from flodl.data.signature import dataset_signature
from flodl.data.stream import StreamLoader
from flodl.data.streamstate import StreamConfig
from flodl.data.summary import summary, warn_if_empty
from flodl.device import parse_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    import torch
    from torch import Tensor

    from flodl.data.config import LoaderOptions
    from flodl.data.dataset import AnyDataSet, BatchDataSet
    from flodl.data.epoch_data import EpochData
    from flodl.data.iterable import Factory
    from flodl.data.partition import Lease, Uneven
    from flodl.data.resident import DeviceStore

logger = logging.getLogger(__name__)


@final
class DataLoader(Closing):
    """Batches of a data set: ``for batch in loader.epoch(0)``.

    A set that is tensors in memory, or says that it ``is_fixed``, is held on the device when it
    fits; others are streamed: read and moved ahead of time in a background thread.

    Args:
        dataset: A ``DataSet``, a ``BatchDataSet`` or any map-style data set of torch.
        options: The fields of ``LoaderConfig``; ``batch_size`` is required.

    Raises:
        ConfigError: An empty data set, an unknown option, or a value outside its range.
        DataWorkerError: Sample 0, or with a set on the device any sample, cannot be read.

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
        self._length = len(as_batch_dataset(dataset))
        if not self._length:
            raise ConfigError("the data set is empty: a loader needs one sample or more")
        self._config = config
        self._dataset = dataset
        self._device = parse_device(config.device)
        self._position = Position(config, self._length)
        self._delivery = Delivery(dataset, config, self._device, self.num_batches)
        self._running: weakref.ref[EpochIterator | LeaseFeed] | None = None
        self._leases: LeaseFeed | None = None
        self._is_closed = False
        logger.info("%s", self.summary())
        warn_if_empty(config, self._position)

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

    @classmethod
    def from_iterable(
        cls, factory: Factory, batch_size: int, shuffle_buffer: int = 0, **options: Any
    ) -> StreamLoader:
        """Return a loader of samples that can only be read one after the other.

        Args:
            factory: A function that returns a new iterable for each epoch, or an object that can be
                iterated over in each, such as an ``IterableDataset`` of torch or a ``TarStream``.
            batch_size: Rows of a batch.
            shuffle_buffer: Samples held back from which the next one is drawn.
            options: Other fields of ``IterableConfig`` and ``StreamConfig``.

        Raises:
            ConfigError: An unknown option, or a value outside its range.
        """
        given = {"batch_size": batch_size, "shuffle_buffer": shuffle_buffer, **options}
        own, rest = split_options(given, IterableConfig, StreamConfig)
        return StreamLoader(IterableStream(factory, own), rest)

    @classmethod
    def wrap(
        cls,
        loader: Iterable[Any],
        device: str | torch.device = "cpu",
        names: Sequence[str] | None = None,
        **options: Any,
    ) -> StreamLoader:
        """Return a loader of the batches that a loader of torch forms, moved ahead of time.

        Args:
            loader: A ``torch.utils.data.DataLoader``.
            device: Where batches arrive.
            names: Names of the tensors of a batch.
            options: Other fields of ``StreamConfig``.

        Raises:
            ConfigError: An unknown option, or a value outside its range.
        """
        (config,) = split_options({"device": device, **options}, StreamConfig)
        return StreamLoader(TorchLoaderStream(loader, names), config)

    @classmethod
    def from_hf(
        cls, dataset: Any, batch_size: int, columns: Sequence[str] | None = None, **options: Any
    ) -> DataLoader | StreamLoader:
        """Return a loader of a table of the Hugging Face ``datasets`` library.

        Args:
            dataset: A ``Dataset``, or with ``streaming=True`` loaded ``IterableDataset``.
            batch_size: Rows of a batch.
            columns: Columns to read; all when left out.
            options: Those of ``DataLoader``, or of ``from_iterable`` for a streamed set.

        Raises:
            ConfigError: An unknown column or option.
        """
        if hasattr(dataset, "__len__"):
            return cls(HfDataSet(dataset, columns), batch_size=batch_size, **options)
        return cls.from_iterable(HfStream(dataset, columns), batch_size, **options)

    @classmethod
    def from_epoch_fn(
        cls,
        fn: Callable[[int], EpochData],
        batch_size: int,
        device: str | torch.device = "cpu",
        **options: Any,
    ) -> EpochFnLoader:
        """Return a loader of data that a function makes anew for each epoch, one epoch ahead.

        Args:
            fn: Called with the number of each epoch; returns tensors with one row a sample.
            batch_size: Rows of a batch.
            device: Where batches arrive.
            options: Other fields of ``EpochFnConfig``.

        Raises:
            ConfigError: An unknown option, or a value outside its range.
            DataWorkerError: ``fn(0)`` raised.
        """
        (config,) = split_options(
            {"batch_size": batch_size, "device": device, **options}, EpochFnConfig
        )
        return EpochFnLoader(fn, config)

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
        return self._delivery.names

    @property
    def num_samples(self) -> int:
        """Samples of an epoch that are this rank's, those of a dropped last batch included."""
        return self._position.part_length()

    @property
    def num_batches(self) -> int:
        """Batches of a whole epoch, on this rank."""
        return self._position.num_batches()

    def __len__(self) -> int:
        return self.num_batches

    @property
    def is_resident(self) -> bool:
        """Whether the whole set lies in the memory of the device that batches arrive on."""
        return self._delivery.is_resident

    @property
    def store(self) -> DeviceStore | None:
        """The set on the device and the order of the epoch, which a captured step may read."""
        return self._delivery.store

    @property
    def is_distributed(self) -> bool:
        """Whether an epoch is shared with other ranks."""
        return self.world_size > 1 or self._leases is not None

    @property
    def world_size(self) -> int:
        """Ranks that share an epoch by ``partition``; 1 where this loader delivers all of it."""
        return self._position.split.world_size

    def on_device(self, device: str | torch.device) -> DataLoader:
        """Return another loader of the same data and settings, for another device."""
        options = {field.name: getattr(self._config, field.name) for field in fields(LoaderConfig)}
        return DataLoader(self._dataset, **{**options, "device": parse_device(device)})

    @property
    def prefetch_depth(self) -> int:
        """Batches loaded ahead by background threads; 0 when there are none."""
        return self._delivery.depth.depth

    def set_prefetch_depth(self, depth: int) -> None:
        """Load ``depth`` batches ahead from now on, and measure no more.

        0 stops using threads, from the next epoch on.
        """
        self._delivery.depth.fix(whole_number("depth", depth, least=0))

    def auto_resize(self) -> int:
        """Measure once how many batches fit ahead, keep to that, and return it."""
        return self._delivery.depth.resize()

    def partition(
        self,
        rank: int,
        world_size: int,
        *,
        shares: Sequence[float] | None = None,
        uneven: Uneven = "drop",
    ) -> None:
        """Deliver one rank's part of each epoch, from the next one on.

        All ranks compute the same order and take contiguous slices of it.

        Args:
            rank: This one, from 0.
            world_size: How many ranks there are.
            shares: Work of each rank, in any unit; the same for all when left out.
            uneven: ``"drop"``: all ranks take as many batches, and less than a batch of each is
                left out; ``"pad"``: some samples are visited twice instead; ``"allow"``: some
                ranks take more, which is wrong with a collective in each step.

        Raises:
            ConfigError: Values that do not fit, or a state that was loaded before.
        """
        chosen = None if shares is None else tuple(shares)
        self._cut(Split(rank=rank, world_size=world_size, shares=chosen, uneven=uneven))

    def partition_from_environment(self, *, uneven: Uneven = "drop") -> bool:
        """Deliver the part of the rank that torchrun or Slurm started, and return whether one did.

        Raises:
            ConfigError: Variables of theirs that make no sense, or a state that was loaded before.
        """
        split = split_of(os.environ, uneven)
        if split is not None:
            self._cut(split)
        return split is not None

    def _cut(self, split: Split) -> None:
        self._position.split = split
        logger.info("rank %d of %d: %s", split.rank, split.world_size, self.summary())
        warn_if_empty(self._config, self._position)

    def assign(self, lease: Lease) -> None:
        """Add a lease to ``leases()``; see there."""
        self.leases().assign(lease)

    def leases(self) -> LeaseFeed:
        """Return where a controller's leases go in and their batches come out.

        A running epoch goes stale. ``epoch()`` ends the leases; after that, or an error, this
        begins anew.

        Raises:
            ConfigError: The loader holds one part of the data only.
            DataError: The loader is closed.
        """
        if self._leases is None or not self._leases.is_open:
            self._check_open("leases()")
            if self._position.is_fixed:
                raise ConfigError(
                    'leases() with resident="partition": a lease may hold samples of any part'
                )
            self._expire()
            delivery = self._delivery
            self._position.leave()
            self._leases = LeaseFeed(
                self._leased_order,
                partial(delivery.begin, in_place=False),
                delivery.feed,
                self._config.batch_size,
                delivery.abort,
            )
            self._running = weakref.ref(self._leases)
        return self._leases

    def _leased_order(self, epoch: int) -> Tensor:
        self._delivery.depth.begin_epoch()
        return self._position.leased_order(epoch)

    def epoch(self, number: int) -> EpochIterator:
        """Return the batches of one epoch; the iterator of an earlier one goes stale.

        After ``load_state_dict`` the epoch that was interrupted yields what is left of it.

        Raises:
            ConfigError: A negative epoch.
            DataError: The loader is closed.
            SamplerError: The sampler gave an order that does not fit the data set.
            torch.OutOfMemoryError: ``resident="partition"``, and the device has no room for it.
        """
        whole_number("epoch", number, least=0)
        self._check_open(f"epoch({number})")
        self._expire()
        progress = self._position.begin(number)
        delivery, samples = self._delivery, progress.samples
        delivery.hold(self._position.held())
        jobs = EpochJobs(
            delivery.begin(samples),
            number,
            progress.plan.batch_size,
            progress.numbers,
            progress.first_index,
        )
        iterator = EpochIterator(progress, delivery.feed(jobs), delivery.abort)
        self._running = weakref.ref(iterator)
        return iterator

    def __iter__(self) -> EpochIterator:
        return self.epoch(self._position.next_epoch)

    def _check_open(self, asked: str) -> None:
        if self._is_closed:
            raise DataError(f"{asked}: this loader is closed", hint="build another loader")

    def _expire(self) -> None:
        running = self._running() if self._running is not None else None
        if running is not None:
            running.expire()
        self._running = self._leases = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position: which batches the consumer took, not which were loaded ahead.

        The values are plain. Saved after a batch has been used, the state leads to the next one.
        With ``partition`` it holds for all ranks that took as many batches; with unequal shares
        each rank saves its own, and ``merge_states`` joins them. What leases cover is for the
        controller to know.
        """
        return self._position.state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Continue from a saved position: its epoch yields exactly the batches not yet taken.

        That is none when the epoch had been finished; iterating over the loader then begins the
        next one. Any other epoch is whole.

        Args:
            state: What ``state_dict`` returned.
            strict: Whether ``batch_size``, ``drop_last`` and the partition must be the same;
                otherwise what no rank has taken is cut up anew by this loader's own.

        Raises:
            ResumeMismatchError: The state belongs to other data, another order or other settings.
        """
        self._position.load(LoaderState.from_dict(state), strict=strict)
        self._expire()

    def signature(self) -> str:
        """Return a hash of the data and the order of epoch 0: equal where ranks may train together.

        It is that of the data set's ``signature()`` where it has one, else of its length and its
        first, middle and last sample.
        """
        return dataset_signature(self._dataset, self._position.order(0))

    def summary(self) -> str:
        """Return one line on what the loader does: samples, memory, batches, order, thread."""
        return summary(self._config, self._position, self._delivery)

    def close(self) -> None:
        """End the running epoch and its threads, and let go of the set on the device.

        The loader cannot be used again.
        """
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()
        self._running = self._leases = None
        self._delivery.close()
        self._is_closed = True
