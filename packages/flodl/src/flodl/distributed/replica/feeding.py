"""Where the rows of each device come from: loaders on the devices, or whole batches cut up."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import torch

from flodl.core.errors import ConfigError
from flodl.data.batch import Batch
from flodl.data.loader import DataLoader
from flodl.data.partition import Lease, length
from flodl.distributed.elche.partition import clamp_total
from flodl.distributed.replica.batch import Turn
from flodl.distributed.replica.drivers import on_device
from flodl.distributed.replica.place import Place

if TYPE_CHECKING:
    from flodl.data.leases import LeaseFeed
    from flodl.graph.stepping.protocols import NamedLoader

AHEAD = 1
"""Turns that loaders are told of before the one they are at is done."""


class Deal(Protocol):
    """Says how the next rows are shared out."""

    @property
    def deals_whole(self) -> bool:
        """Whether devices take whole batches, not parts of each."""
        ...

    def sizes(self, rows: int) -> list[int]:
        """Return how many rows of one batch each rank takes."""
        ...

    def counts(self, batches: int | None) -> list[int]:
        """Return how many batches each rank takes; ``None`` where nobody knows how many are left.

        Together they are at most ``batches``.
        """
        ...


class Feeding(ABC):
    """Gives the rows of one epoch after the other."""

    first_index = 0
    """Number of the first batch: not 0 where a loader continues in the middle of an epoch."""
    order_crc = 0
    """Tells orders of samples apart, where the loader says which it has."""

    @abstractmethod
    def begin(self, epoch: int, deal: Deal) -> int | None:
        """Start an epoch, whatever is left of another; return its batches if that is known."""

    @abstractmethod
    def take(self) -> Turn | None:
        """Return the next turn, ``None`` at the end."""

    @abstractmethod
    def end(self) -> None:
        """Let go of what was not taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Planned:
    """A turn that loaders were told of."""

    rows: list[int]
    batches: int


@final
class LeasedFeeding(Feeding):
    """A loader on each device, which reads the rows of that device only.

    Args:
        source: The loader that the user holds, whose ``state_dict`` tells how far the loop is.
        loaders: Those of the ranks that are held here.
        ranks: Which these are.
    """

    def __init__(
        self, source: DataLoader, loaders: Sequence[DataLoader], ranks: Sequence[int]
    ) -> None:
        self._place = Place(source, loaders)
        self._loaders, self._ranks = list(loaders), list(ranks)
        self._feeds: list[LeaseFeed] = []
        self._ids = itertools.count()
        self._planned: deque[_Planned] = deque()
        self._device = torch.device("cpu")
        self._deal: Deal | None = None

    @property
    def loaders(self) -> tuple[DataLoader, ...]:
        """The loaders."""
        return tuple(self._loaders)

    def begin(self, epoch: int, deal: Deal) -> int:
        """See `Feeding`."""
        self.end()
        self._feeds = self._place.enter(epoch)
        self._deal, self._device = deal, gather_device(self._loaders)
        self.first_index, self.order_crc = self._place.first_index, self._place.order_crc
        return self._place.batches_left

    def take(self) -> Turn | None:
        """See `Feeding`."""
        while len(self._planned) <= AHEAD and (planned := self._plan()) is not None:
            self._planned.append(planned)
        if not self._planned:
            return None
        planned = self._planned.popleft()
        size = self._place.batch_size
        counts = tuple(-(-rows // size) for rows in planned.rows)
        shards = [self._taken(k, counts[rank]) for k, rank in enumerate(self._ranks)]
        self._place.count(planned.batches)
        return Turn(
            shards=tuple(shards), rows=tuple(planned.rows), counts=counts, device=self._device
        )

    def end(self) -> None:
        """See `Feeding`."""
        self._planned.clear()
        feeds, self._feeds = self._feeds, []
        for feed in feeds:
            feed.close()  # with the threads that load ahead, as at the end of any epoch

    def _plan(self) -> _Planned | None:
        """Share out the next rows, tell the loaders, and return what each rank has."""
        place, deal = self._place, self._deal
        if deal is None or place.batches_left <= 0:
            return None
        if deal.deals_whole:
            counts = deal.counts(place.batches_left)
            parts = [place.next_batches(count) for count in counts]
            batches = sum(counts)
        else:
            parts = place.next_rows(deal.sizes)
            batches = 1
        for k, rank in enumerate(self._ranks):
            if parts[rank]:
                lease = Lease(lease_id=next(self._ids), epoch=place.epoch, ranges=parts[rank])
                with on_device(self._loaders[k].device):
                    self._feeds[k].assign(lease)
        return _Planned(rows=[length(part) for part in parts], batches=batches)

    def _taken(self, k: int, count: int) -> tuple[Batch, ...]:
        with on_device(self._loaders[k].device):
            batches = [self._feeds[k].take() for _ in range(count)]
        return tuple(batch for batch in batches if batch is not None)


def gather_device(loaders: Sequence[DataLoader]) -> torch.device:
    """Return where rows of several devices come together for the user to read."""
    if len(loaders) == 1:
        return loaders[0].device
    resident = [
        loader.device for loader in loaders if loader.is_resident and loader.device.type == "cuda"
    ]
    if not resident:
        return torch.device("cpu")
    return max(resident, key=lambda device: torch.cuda.mem_get_info(device)[0])


@final
class SlicedFeeding(Feeding):
    """Any loader: its batches are read here and cut up.

    Args:
        loader: It gives the batches of all ranks.
        devices: Devices of the ranks that are held here.
        ranks: Which these are.
    """

    def __init__(
        self, loader: NamedLoader, devices: Sequence[torch.device], ranks: Sequence[int]
    ) -> None:
        self._loader = loader
        self._devices, self._ranks = list(devices), list(ranks)
        self._batches: Iterator[Any] = iter(())
        self._left: int | None = None
        self._deal: Deal | None = None

    def begin(self, epoch: int, deal: Deal) -> int | None:
        """See `Feeding`."""
        self._batches, self._deal = self._loader.epoch(epoch), deal
        self._left = len(self._batches) if isinstance(self._batches, Sized) else None
        return self._left

    def take(self) -> Turn | None:
        """See `Feeding`."""
        deal = self._deal
        if deal is None:
            return None
        counts = deal.counts(self._left) if deal.deals_whole else None
        wanted = 1 if counts is None else sum(counts)
        whole = [as_batch(item) for item in itertools.islice(self._batches, wanted)]
        if self._left is not None:
            self._left -= len(whole)
        if not whole:
            return None
        if counts is None:
            return self._split(whole[0], deal.sizes(whole[0].size))
        return self._dealt(whole, clamp_total(counts, len(whole)))

    def end(self) -> None:
        """See `Feeding`."""
        self._batches, self._deal = iter(()), None

    def _split(self, batch: Batch, sizes: Sequence[int]) -> Turn:
        ends = list(itertools.accumulate(sizes, initial=0))
        shards = [
            (_rows(batch, ends[rank], ends[rank + 1], device),) if sizes[rank] else ()
            for device, rank in zip(self._devices, self._ranks, strict=True)
        ]
        return self._turn(shards, sizes, [int(size > 0) for size in sizes], batch)

    def _dealt(self, whole: Sequence[Batch], counts: Sequence[int]) -> Turn:
        ends = list(itertools.accumulate(counts, initial=0))
        own = [whole[start:stop] for start, stop in itertools.pairwise(ends)]
        shards = [
            tuple(_rows(batch, 0, batch.size, device) for batch in own[rank])
            for device, rank in zip(self._devices, self._ranks, strict=True)
        ]
        rows = [sum(batch.size for batch in batches) for batches in own]
        return self._turn(shards, rows, counts, whole[0])

    def _turn(
        self,
        shards: Sequence[tuple[Batch, ...]],
        rows: Sequence[int],
        counts: Sequence[int],
        like: Batch,
    ) -> Turn:
        return Turn(
            shards=tuple(shards), rows=tuple(rows), counts=tuple(counts), device=like[0].device
        )


def feeding_of(
    loader: NamedLoader, devices: Sequence[torch.device], ranks: Sequence[int]
) -> Feeding:
    """Return where ranks on these devices get their rows.

    Raises:
        ConfigError: The loader delivers one rank's part only.
    """
    if not isinstance(loader, DataLoader):
        return SlicedFeeding(loader, devices, ranks)
    if loader.world_size > 1:
        raise ConfigError(
            "set_data_loader(): this loader delivers one rank's part of the data",
            hint="give the loader of all data: the graph shares it out",
        )
    loaders, free = [], [loader]
    for device in devices:
        # The one that is there serves one device, so that its memory is not needed twice.
        is_there = bool(free) and free[0].device == device
        loaders.append(free.pop() if is_there else _on_device(loader, device))
    return LeasedFeeding(loader, loaders, ranks)


def _on_device(loader: DataLoader, device: torch.device) -> DataLoader:
    with on_device(device):
        return loader.on_device(device)


def as_batch(item: Any) -> Batch:
    """Return what a loader gave as a batch.

    Raises:
        ConfigError: It is none, and no mapping of tensors.
    """
    if isinstance(item, Batch):
        return item
    if isinstance(item, Mapping):
        return Batch(list(item.values()), list(item))
    raise ConfigError(
        f"the loader gives a {type(item).__name__}: expected a Batch or a mapping of tensors"
    )


def _rows(batch: Batch, start: int, stop: int, device: torch.device) -> Batch:
    tensors = [tensor[start:stop].to(device, non_blocking=True) for tensor in batch]
    return Batch(tensors, batch.names, epoch=batch.epoch, index=batch.index, static=batch.static)
