"""Where a loader is: the epoch it is in, what was taken of it, and how that is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import ConfigError, DataError, ResumeMismatchError
from flodl.data.epoch import EpochPlan, EpochProgress, batch_count
from flodl.data.partition import Ranges, Split, length
from flodl.data.parts import FixedParts
from flodl.data.resume import LoaderState, order_crc
from flodl.data.sampler import RandomSampler, SequentialSampler, as_sampler, checked_order

if TYPE_CHECKING:
    from flodl.data.config import LoaderConfig


class Position:
    """The epochs of a loader, in order, and the place in the current one.

    Args:
        config: Settings of the loader: order and batch size.
        length: Samples in the data set.
    """

    def __init__(self, config: LoaderConfig, length: int) -> None:
        self._config = config
        self.length = length
        self._split = Split()
        self.is_shuffled = config.shuffle is not False and config.sampler is None
        if config.sampler is not None:
            self.sampler = as_sampler(config.sampler)
        elif self.is_shuffled:
            self.sampler = RandomSampler(length, config.seed)
        else:
            self.sampler = SequentialSampler(length)
        self.next_epoch = 0
        self._current: EpochProgress | None = None
        self._resumed: EpochProgress | None = None
        self._leased: tuple[int, torch.Tensor] | None = None

    @property
    def split(self) -> Split:
        """How epochs are cut up for the ranks."""
        return self._split

    @split.setter
    def split(self, split: Split) -> None:
        if self._resumed is not None:
            raise ConfigError(
                f"partition({split.rank}, {split.world_size}) after load_state_dict: the rest of "
                f"epoch {self._resumed.epoch} is cut up already",
                hint="call partition first",
            )
        if self.is_fixed and split.uneven == "pad":
            raise ConfigError(
                'uneven="pad" with resident="partition": padding is done with samples that other '
                "ranks hold",
                hint='choose "drop" or "allow"',
            )
        self._split = split

    @property
    def is_fixed(self) -> bool:
        """Whether this rank visits the same samples in each epoch."""
        return self._config.resident == "partition"

    def held(self) -> range:
        """Return the samples that this rank visits in one epoch or another."""
        if not self.is_fixed:
            return range(self.length)
        return self._parts().of(self._split.rank)

    def _parts(self) -> FixedParts:
        config = self._config
        sizes = self._split.sizes(
            self.length, batch_size=config.batch_size, drop_last=config.drop_last
        )
        return FixedParts(self.length, sizes)

    def part_length(self) -> int:
        """Return how many samples of an epoch are this rank's."""
        return length(self._plan(_all(len(self.sampler))).part())

    def num_batches(self) -> int:
        """Return how many batches a whole epoch has on this rank."""
        config = self._config
        return batch_count(self.part_length(), config.batch_size, drop_last=config.drop_last)

    def order(self, epoch: int) -> torch.Tensor:
        """Return the order of a whole epoch, the same on all ranks of a partition.

        Raises:
            SamplerError: The sampler gave an order that does not fit the data set.
        """
        if self.is_fixed and self._split.world_size > 1:
            seed = self._config.seed if self.is_shuffled else None
            return self._parts().order(epoch, seed)
        return checked_order(self.sampler, epoch, self.length)

    def begin(self, epoch: int) -> EpochProgress:
        """Enter an epoch: at its start, or where a loaded state left it.

        Raises:
            SamplerError: The sampler gave an order that does not fit the data set.
        """
        progress, self._resumed = self._resumed, None
        if progress is None or progress.epoch != epoch:
            order = self.order(epoch)
            progress = EpochProgress(epoch=epoch, order=order, plan=self._plan(_all(len(order))))
        self._current = progress
        self._leased = None
        self.next_epoch = epoch + 1
        return progress

    def leave(self) -> None:
        """Leave the current epoch, as leases say from now on what is delivered."""
        self._current = self._resumed = None

    def leased_order(self, epoch: int) -> torch.Tensor:
        """Return the order of an epoch of which parts are leased; states then hold its CRC.

        Raises:
            SamplerError: The sampler gave an order that does not fit the data set.
        """
        order = self.order(epoch)
        if self._leased is None or epoch >= self._leased[0]:
            self._leased = epoch, order
            self.next_epoch = epoch
        return order

    def _plan(self, pending: Ranges) -> EpochPlan:
        return EpochPlan(
            pending=pending,
            split=self._split,
            batch_size=self._config.batch_size,
            drop_last=self._config.drop_last,
        )

    def state(self) -> LoaderState:
        """Return the position, counted in what the consumer took."""
        progress = self._resumed or self._current
        plan = self._plan(()) if progress is None else progress.plan
        leased = None if self._leased is None else self._leased[1]
        order = leased if progress is None else progress.order
        return LoaderState(
            epoch=self.next_epoch if progress is None else progress.epoch,
            batches=0 if progress is None else progress.first_index + progress.batches_taken,
            taken=0 if progress is None else progress.batches_taken,
            samples_consumed=0 if progress is None else _consumed(progress),
            is_complete=progress is not None and progress.is_complete,
            batch_size=plan.batch_size,
            drop_last=plan.drop_last,
            seed=self._config.seed,
            shuffle=self.is_shuffled,
            dataset_length=self.length,
            order_crc=None if order is None else order_crc(order),
            sampler=self._sampler_state(),
            pending=None if progress is None else plan.pending,
            rank=plan.split.rank,
            world_size=plan.split.world_size,
            shares=plan.split.shares,
            uneven=plan.split.uneven,
        )

    def _sampler_state(self) -> dict[str, Any] | None:
        save = getattr(self.sampler, "state_dict", None)
        state: dict[str, Any] | None = None if save is None else save()
        return state

    def load(self, saved: LoaderState, *, strict: bool) -> None:
        """Take over a saved position; after an error the position is what it was.

        Raises:
            ResumeMismatchError: The state does not fit.
        """
        here = self.own_settings()
        saved.check(here, strict=strict)
        self._load_sampler(saved.sampler)
        try:
            resumed = self._found_in(saved, here)
        except DataError:
            self._load_sampler(here.sampler)
            raise
        self._resumed = resumed
        self._current = self._leased = None
        self.next_epoch = saved.epoch + 1 if saved.is_complete else saved.epoch

    def _found_in(self, saved: LoaderState, here: LoaderState) -> EpochProgress | None:
        if saved.pending is not None:
            return self._rest_of(saved, here)
        if saved.order_crc is not None:  # saved while leases ran
            saved.check_order(self.order(saved.epoch))
        return None

    def own_settings(self) -> LoaderState:
        """Return the state of a loader with these settings that has done nothing yet."""
        current, resumed = self._current, self._resumed
        self._current = self._resumed = None
        try:
            return self.state()
        finally:
            self._current, self._resumed = current, resumed

    def _load_sampler(self, state: dict[str, Any] | None) -> None:
        load = getattr(self.sampler, "load_state_dict", None)
        if (load is None) != (state is None):
            has = "has" if state is not None else "lacks"
            raise ResumeMismatchError(
                f"sampler: the state {has} that of a sampler, unlike {type(self.sampler).__name__}"
            )
        if load is not None:
            load(state)

    def _rest_of(self, saved: LoaderState, here: LoaderState) -> EpochProgress:
        if saved.is_complete:  # its order is of no use, and some samplers cannot repeat it
            return EpochProgress(
                epoch=saved.epoch,
                order=torch.empty(0, dtype=torch.int64),
                plan=self._plan(()),
                first_index=saved.batches,
            )
        if self.is_fixed and not saved.is_cut_as(here):
            raise ResumeMismatchError(
                f"epoch {saved.epoch} was cut up among {saved.world_size} ranks, or in batches, "
                'other than here: resident="partition" cannot change the parts in an epoch',
                hint="go on with as many ranks and the same batch_size, or from the next epoch",
            )
        order = self.order(saved.epoch)
        saved.check_order(order)
        if saved.is_cut_as(here):
            plan, skipped = self._plan(saved.pending or ()), saved.taken
        else:
            plan, skipped = self._plan(saved.left()), 0
        return EpochProgress(
            epoch=saved.epoch,
            order=order,
            plan=plan,
            first_index=saved.batches - skipped,
            skipped=skipped,
        )


def _all(count: int) -> Ranges:
    return ((0, count),) if count else ()


def _consumed(progress: EpochProgress) -> int:
    """Samples that all ranks took, or with shares this one, as ranks then do not keep step."""
    split, taken = progress.plan.split, progress.batches_taken
    ranks = range(split.world_size) if split.shares is None else (split.rank,)
    return progress.order.numel() - length(progress.plan.left(dict.fromkeys(ranks, taken)))
