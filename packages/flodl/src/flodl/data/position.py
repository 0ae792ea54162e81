"""Where a loader is: the epoch it is in, what was taken of it, and how that is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import ResumeMismatchError
from flodl.data.epoch import EpochProgress
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
        self._length = length
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

    def begin(self, epoch: int) -> EpochProgress:
        """Enter an epoch: at its start, or where a loaded state left it.

        Raises:
            SamplerError: The sampler gave an order that does not fit the data set.
        """
        progress, self._resumed = self._resumed, None
        if progress is None or progress.epoch != epoch:
            progress = self._whole(epoch)
        self._current = progress
        self.next_epoch = epoch + 1
        return progress

    def _whole(self, epoch: int) -> EpochProgress:
        return EpochProgress(
            epoch=epoch,
            order=checked_order(self.sampler, epoch, self._length),
            batch_size=self._config.batch_size,
            drop_last=self._config.drop_last,
        )

    def state(self) -> LoaderState:
        """Return the position, counted in what the consumer took."""
        progress = self._resumed or self._current
        return LoaderState(
            epoch=self.next_epoch if progress is None else progress.epoch,
            batches=0 if progress is None else progress.batches_consumed,
            samples_consumed=0 if progress is None else progress.samples_consumed,
            is_complete=progress is not None and progress.is_complete,
            batch_size=self._config.batch_size,
            drop_last=self._config.drop_last,
            seed=self._config.seed,
            shuffle=self.is_shuffled,
            dataset_length=self._length,
            order_crc=None if progress is None else order_crc(progress.order),
            sampler=self._sampler_state(),
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
        saved.check(self.state(), strict=strict)
        self._load_sampler(saved)
        goes_on = saved.is_complete or saved.samples_consumed
        self._resumed = self._rest_of(saved) if goes_on else None
        self._current = None
        self.next_epoch = saved.epoch + 1 if saved.is_complete else saved.epoch

    def _load_sampler(self, saved: LoaderState) -> None:
        load = getattr(self.sampler, "load_state_dict", None)
        if (load is None) != (saved.sampler is None):
            has = "has" if saved.sampler is not None else "lacks"
            raise ResumeMismatchError(
                f"sampler: the state {has} that of a sampler, unlike {type(self.sampler).__name__}"
            )
        if load is not None:
            load(saved.sampler)

    def _rest_of(self, saved: LoaderState) -> EpochProgress:
        if saved.is_complete:  # its order is of no use, and some samplers cannot repeat it
            progress = EpochProgress(
                epoch=saved.epoch,
                order=torch.empty(0, dtype=torch.int64),
                batch_size=self._config.batch_size,
                drop_last=self._config.drop_last,
            )
        else:
            progress = self._whole(saved.epoch)
            saved.check_order(progress.order)
            progress.first_sample = saved.samples_consumed
        progress.first_batch = saved.batches
        return progress
