"""The fluent form of the loader: the same options, one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.data.config import LoaderOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from flodl.data.config import BatchTransform, Collate, Resident, WorkerMode
    from flodl.data.loader import DataLoader
    from flodl.data.sampler import AnySampler
    from flodl.data.storage import StorageDtype


class DataLoaderBuilder:
    """Collects the options of a :class:`DataLoader`; each call returns the builder.

    Args:
        make: Turns the keywords of ``DataLoader`` into the loader.
    """

    def __init__(self, make: Callable[..., DataLoader]) -> None:
        self._make = make
        self._options = LoaderOptions()

    def batch_size(self, rows: int) -> DataLoaderBuilder:
        """Set the rows of a batch; required."""
        self._options["batch_size"] = rows
        return self

    def device(self, device: str | torch.device) -> DataLoaderBuilder:
        """Set where batches arrive."""
        self._options["device"] = device
        return self

    def seed(self, seed: int) -> DataLoaderBuilder:
        """Set the base of the shuffles."""
        self._options["seed"] = seed
        return self

    def shuffle(self, shuffle: bool = True) -> DataLoaderBuilder:
        """Set whether each epoch has a new random order."""
        self._options["shuffle"] = shuffle
        return self

    def sampler(self, sampler: AnySampler) -> DataLoaderBuilder:
        """Set the order of the samples, in place of shuffles."""
        self._options["sampler"] = sampler
        return self

    def drop_last(self, drop_last: bool = True) -> DataLoaderBuilder:
        """Set whether a last batch with fewer rows is left out."""
        self._options["drop_last"] = drop_last
        return self

    def names(self, names: Sequence[str]) -> DataLoaderBuilder:
        """Set the names of the tensors, in order."""
        self._options["names"] = names
        return self

    def transform(self, transform: BatchTransform) -> DataLoaderBuilder:
        """Set what is called with each batch on the CPU."""
        self._options["transform"] = transform
        return self

    def device_transform(self, transform: BatchTransform) -> DataLoaderBuilder:
        """Set what is called with each batch on its device."""
        self._options["device_transform"] = transform
        return self

    def prefetch(self, depth: int) -> DataLoaderBuilder:
        """Set how many batches a background thread loads ahead."""
        self._options["prefetch"] = depth
        return self

    def collate(self, collate: Collate) -> DataLoaderBuilder:
        """Set what forms a batch of a list of samples, in place of stacking."""
        self._options["collate"] = collate
        return self

    def resident(self, resident: Resident = True) -> DataLoaderBuilder:
        """Set whether the whole set is held on the device, in place of deciding by memory."""
        self._options["resident"] = resident
        return self

    def storage_dtype(self, dtype: StorageDtype) -> DataLoaderBuilder:
        """Set the dtype in which tensors are kept and delivered."""
        self._options["storage_dtype"] = dtype
        return self

    def streaming(self, streaming: bool = True) -> DataLoaderBuilder:
        """Set whether batches are fetched in any case."""
        self._options["streaming"] = streaming
        return self

    def vram_max_usage(self, share: float) -> DataLoaderBuilder:
        """Set which share of a GPU's memory may be used at all."""
        self._options["vram_max_usage"] = share
        return self

    def activation_reserve(self, n_bytes: int) -> DataLoaderBuilder:
        """Set the bytes that batches loaded ahead leave to a training step."""
        self._options["activation_reserve"] = n_bytes
        return self

    def workers(self, count: int) -> DataLoaderBuilder:
        """Set how many threads or processes load ahead."""
        self._options["workers"] = count
        return self

    def worker_mode(self, mode: WorkerMode) -> DataLoaderBuilder:
        """Set whether batches are read in threads or in child processes."""
        self._options["worker_mode"] = mode
        return self

    def timeout(self, seconds: float) -> DataLoaderBuilder:
        """Set how long one batch may take."""
        self._options["timeout"] = seconds
        return self

    def pin(self, pin: bool = True) -> DataLoaderBuilder:
        """Set whether batches on the CPU are page-locked."""
        self._options["pin"] = pin
        return self

    def max_pinned_bytes(self, n_bytes: int) -> DataLoaderBuilder:
        """Set how much page-locked memory copies under way may take."""
        self._options["max_pinned_bytes"] = n_bytes
        return self

    def build(self) -> DataLoader:
        """Return the loader; raises what ``DataLoader`` raises."""
        return self._make(**self._options)
