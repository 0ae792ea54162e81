"""Data sets made of other data sets: mapped, cut, joined, repeated."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, final

import torch
from torch import Tensor

from flodl.core.errors import ConfigError, SampleError
from flodl.data.adapter import as_batch_dataset
from flodl.data.dataset import (
    as_tensor,
    check_indices,
    declared_names,
    fields_of,
    in_memory_tensors,
    is_fixed,
    item_reader,
)
from flodl.data.sampler import seeded_permutation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flodl.data.dataset import AnyDataSet, Fields, Sample


class MapDataSet:
    """A data set whose samples are ``fn(sample)``; batches are formed from them one by one.

    Args:
        dataset: Where the samples come from.
        fn: Called with each sample, in a background thread when batches are loaded ahead.
    """

    def __init__(self, dataset: AnyDataSet, fn: Callable[[Any], Sample]) -> None:
        self._length = len(cast("Any", dataset))
        self._item = item_reader(dataset)
        self._fn = fn

    def __len__(self) -> int:
        return self._length

    def get(self, index: int) -> Sample:
        """Return ``fn`` of sample ``index``; raise ``IndexError`` outside ``[0, len)``."""
        check_indices([index], self._length)
        return self._fn(self._item(index))

    def __getitem__(self, index: int) -> Sample:
        return self.get(index)


class Reindexed(ABC):
    """Samples of another data set under other indices."""

    def __init__(self, dataset: AnyDataSet) -> None:
        self.base = dataset
        self.names = declared_names(dataset)
        self._batches = as_batch_dataset(dataset)
        self._item = item_reader(dataset)

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def is_fixed(self) -> bool:
        """Whether every read of a sample gives the same values."""
        return is_fixed(self.base)

    @abstractmethod
    def base_indices(self, indices: Tensor) -> Tensor:
        """Return where the samples ``indices`` lie in ``base``."""

    @final
    def get(self, index: int) -> Any:
        """Return sample ``index``; raise ``IndexError`` outside ``[0, len)``."""
        return self._item(int(self.base_indices(check_indices([index], len(self)))))

    @final
    def __getitem__(self, index: int) -> Any:
        return self.get(index)

    @final
    def get_batch(self, indices: Tensor | Sequence[int]) -> Fields:
        """Return the given samples; raise ``IndexError`` outside ``[0, len)``."""
        return self._batches.get_batch(self.base_indices(check_indices(indices, len(self))))


@final
class Subset(Reindexed):
    """The samples of ``dataset`` at ``indices``, in that order."""

    def __init__(self, dataset: AnyDataSet, indices: Tensor | Sequence[int]) -> None:
        super().__init__(dataset)
        self.indices = check_indices(indices, len(self._batches))

    def __len__(self) -> int:
        return self.indices.numel()

    def base_indices(self, indices: Tensor) -> Tensor:
        """Return where the samples ``indices`` lie in ``base``."""
        return self.indices.index_select(0, indices)


@final
class Repeat(Reindexed):
    """The samples of ``dataset`` over and over, up to ``virtual_len`` of them: for benchmarks."""

    def __init__(self, dataset: AnyDataSet, virtual_len: int) -> None:
        super().__init__(dataset)
        if virtual_len < 1 or not len(self._batches):
            raise ConfigError(
                f"Repeat of {len(self._batches)} samples to {virtual_len}: both must be at least 1"
            )
        self._virtual_len = virtual_len

    def __len__(self) -> int:
        return self._virtual_len

    def base_indices(self, indices: Tensor) -> Tensor:
        """Return where the samples ``indices`` lie in ``base``."""
        return indices % len(self._batches)


@final
class Concat:
    """The samples of several data sets, one data set after the other.

    Raises:
        ConfigError: No data sets, or data sets whose declared names differ.
        SampleError: From ``get_batch``: tensors of the parts differ in number, shape or dtype.
    """

    def __init__(self, datasets: Sequence[AnyDataSet]) -> None:
        if not datasets:
            raise ConfigError("Concat of no data sets: expected one or more")
        names = [declared_names(dataset) for dataset in datasets]
        if len(set(names)) > 1:
            raise ConfigError(f"Concat of data sets with the names {names}: expected the same")
        self.names = names[0]
        self._parts = [as_batch_dataset(dataset) for dataset in datasets]
        self._items = [item_reader(dataset) for dataset in datasets]
        self._is_fixed = all(is_fixed(dataset) for dataset in datasets)
        self._ends = torch.tensor([len(part) for part in self._parts]).cumsum(0)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def is_fixed(self) -> bool:
        """Whether every read of a sample gives the same values."""
        return self._is_fixed

    def get(self, index: int) -> Any:
        """Return sample ``index``; raise ``IndexError`` outside ``[0, len)``."""
        part = int(self._owners(check_indices([index], len(self))))
        return self._items[part](index - self._start(part))

    def __getitem__(self, index: int) -> Any:
        return self.get(index)

    def get_batch(self, indices: Tensor | Sequence[int]) -> Fields:
        """Return the given samples; raise ``IndexError`` outside ``[0, len)``."""
        wanted = check_indices(indices, len(self))
        owners = self._owners(wanted)
        places, pieces = [], []
        for part in owners.unique().tolist():
            place = (owners == part).nonzero().squeeze(1)
            places.append(place)
            pieces.append(self._parts[part].get_batch(wanted[place] - self._start(part)))
        return _interleaved(pieces, torch.cat(places).argsort())

    def _owners(self, indices: Tensor) -> Tensor:
        return torch.bucketize(indices, self._ends, right=True)

    def _start(self, part: int) -> int:
        return int(self._ends[part - 1]) if part else 0


def _interleaved(pieces: list[Fields], order: Tensor) -> Fields:
    names = fields_of(pieces[0])[0]
    columns = [[as_tensor(value) for value in fields_of(piece)[1]] for piece in pieces]
    forms = {
        (fields_of(piece)[0], tuple((t.dtype, t.shape[1:]) for t in column))
        for piece, column in zip(pieces, columns, strict=True)
    }
    if len(forms) > 1:
        raise SampleError(
            f"data sets of a Concat give different batches: {sorted(map(str, forms))}"
        )
    stacked = [torch.cat(column) for column in zip(*columns, strict=True)]
    joined = [tensor.index_select(0, order.to(tensor.device)) for tensor in stacked]
    return joined if names is None else dict(zip(names, joined, strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class InMemoryView:
    """Tensors in memory, and the data sets between their rows and the samples of a data set."""

    tensors: tuple[Tensor, ...]
    path: tuple[Reindexed, ...]

    @classmethod
    def of(cls, dataset: object) -> InMemoryView | None:
        """Return the view of a data set that is nothing but rows in memory, else ``None``."""
        path: list[Reindexed] = []
        while isinstance(dataset, Reindexed):
            path.append(dataset)
            dataset = dataset.base
        tensors = in_memory_tensors(dataset)
        return None if tensors is None else cls(tensors=tensors, path=tuple(path))

    def rows(self, indices: Tensor) -> Tensor:
        """Return the rows that hold the samples ``indices``."""
        for dataset in self.path:
            indices = dataset.base_indices(indices)
        return indices


def split(dataset: AnyDataSet, fractions: Sequence[float], seed: int = 42) -> list[Subset]:
    """Return disjoint random parts of ``dataset`` that cover it, one for each fraction.

    Sizes are the fractions of the length, rounded so that they add up; the same seed gives the
    same parts.

    Raises:
        ConfigError: Fractions that are not positive or do not add up to 1, or an empty part.
    """
    length = len(as_batch_dataset(dataset))
    positive = all(fraction > 0 for fraction in fractions)
    if not fractions or not positive or not math.isclose(sum(fractions), 1.0, abs_tol=1e-9):
        raise ConfigError(f"fractions={list(fractions)}: expected positive numbers with the sum 1")
    ends, total = [0], 0.0
    for fraction in fractions:
        total += fraction
        ends.append(round(total * length))
    if any(start == end for start, end in itertools.pairwise(ends)):
        raise ConfigError(
            f"fractions={list(fractions)} of {length} samples leave a part without samples"
        )
    order = seeded_permutation(length, seed, 0)
    return [Subset(dataset, order[start:end]) for start, end in itertools.pairwise(ends)]
