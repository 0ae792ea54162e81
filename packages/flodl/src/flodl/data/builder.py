"""The fluent form of the loader: the same options, one call each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.data.config import LoaderOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from flodl.data.config import BatchTransform
    from flodl.data.loader import DataLoader
    from flodl.data.sampler import AnySampler


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

    def build(self) -> DataLoader:
        """Return the loader; raises what ``DataLoader`` raises."""
        return self._make(**self._options)
