"""Batches from data sets that give one sample at a time, and the one door to any data set."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from flodl.core.errors import SampleError
from flodl.data.batch import default_names
from flodl.data.dataset import (
    as_tensor,
    check_indices,
    declared_names,
    fields_of,
    item_reader,
    not_a_dataset,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flodl.data.assembly import Empty
    from flodl.data.dataset import AnyDataSet, BatchDataSet

_NUMBERS: tuple[set[type], ...] = ({int}, {float})
_SHAPE, _DTYPE = attrgetter("shape"), attrgetter("dtype")
HELD_SAMPLES = 64
HELD_BYTES = 1 << 18
_ONE_LAYOUT = "give every sample the same shapes and dtypes, or form batches in get_batch(indices)"


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLayout:
    """Names, shapes and dtypes that every sample of a data set has."""

    names: tuple[str, ...]
    is_named: bool
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, sample: object) -> SampleLayout:
        """Return the layout of one sample.

        Raises:
            SampleError: The sample holds no tensors, or something that is no tensor.
        """
        names, values = fields_of(sample)
        if not values:
            raise SampleError("sample 0 has no tensors: expected one or more")
        tensors = [_field(value, 0, position) for position, value in enumerate(values)]
        return cls(
            names=names or default_names(len(tensors)),
            is_named=names is not None,
            shapes=tuple(tensor.shape for tensor in tensors),
            dtypes=tuple(tensor.dtype for tensor in tensors),
        )

    def columns_of(
        self, samples: Sequence[object], indices: Sequence[int]
    ) -> Sequence[Sequence[object]]:
        """Return the values of several samples, those of one tensor together.

        Raises:
            SampleError: One holds other names or another number of values.
        """
        # by whole batches: a call for each sample costs as much as reading a small one
        kinds: set[type] = set(map(type, samples))
        rows: Sequence[Any] = samples
        if kinds == {tuple} and not self.is_named and set(map(len, rows)) == {len(self.names)}:
            return list(zip(*rows, strict=True))
        if kinds == {dict} and self.is_named and set(map(tuple, rows)) == {self.names}:
            return [[row[name] for row in rows] for name in self.names]
        values = [
            self._values_of(sample, index) for sample, index in zip(samples, indices, strict=True)
        ]
        return list(zip(*values, strict=True))

    def _values_of(self, sample: object, index: int) -> Sequence[object]:
        names, values = fields_of(sample)
        if not self.is_named and names is None and len(values) == len(self.names):
            return values
        if self.is_named and names is not None and set(names) == set(self.names):
            by_name = dict(zip(names, values, strict=True))
            return [by_name[name] for name in self.names]
        found = f"{len(values)} tensors" if names is None else f"the names {sorted(names)}"
        wanted = f"names {sorted(self.names)}" if self.is_named else f"{len(self.names)} tensors"
        raise SampleError(f"sample {index} has {found}: sample 0 has {wanted}", hint=_ONE_LAYOUT)

    @property
    def n_bytes(self) -> int:
        """Bytes of one sample."""
        sizes = zip(self.shapes, self.dtypes, strict=True)
        return sum(shape.numel() * dtype.itemsize for shape, dtype in sizes)

    def stacked(
        self,
        values: Sequence[object],
        indices: Sequence[int],
        position: int,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return the values of one column as one tensor, ``out`` if given.

        Raises:
            SampleError: One is no tensor, or has another shape or dtype than that of sample 0.
        """
        shape, dtype = self.shapes[position], self.dtypes[position]
        kinds = set(map(type, values))
        if kinds in _NUMBERS:
            numbers = torch.tensor(values)  # at once: a tensor for each costs more than the sample
            if (numbers.shape[1:], numbers.dtype) == (shape, dtype):
                return numbers if out is None else out.copy_(numbers)
        tensors: Any = values
        if kinds != {Tensor}:
            tensors = [
                value if isinstance(value, Tensor) else _field(value, index, position)
                for index, value in zip(indices, values, strict=True)
            ]
        if set(map(_SHAPE, tensors)) != {shape} or set(map(_DTYPE, tensors)) != {dtype}:
            for index, tensor in zip(indices, tensors, strict=True):
                self.check(tensor, index, position)
        if out is None:
            return torch.stack(tensors)
        if tensors[0].device != out.device:
            return out.copy_(torch.stack(tensors))
        return torch.stack(tensors, out=out)

    def check(self, tensor: Tensor, index: int, position: int) -> None:
        """Raise ``SampleError`` unless a tensor of sample ``index`` fits the layout."""
        shape, dtype = self.shapes[position], self.dtypes[position]
        if tensor.shape != shape or tensor.dtype != dtype:
            raise SampleError(
                f"sample {index}, tensor {position} ({self.names[position]!r}) is "
                f"{tensor.dtype} {list(tensor.shape)}: sample 0 has {dtype} {list(shape)}",
                hint=_ONE_LAYOUT,
            )


def _field(value: object, index: int, position: int) -> Tensor:
    try:
        return as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SampleError(
            f"sample {index}, value {position} is a {type(value).__name__}, which is no tensor: "
            f"{error}"
        ) from error


def _new(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype)


class DataSetAdapter:
    """Batches of a data set that gives samples one at a time.

    Output tensors are allocated once per batch from the layout of sample 0, and samples are
    copied in as they come: the peak is one batch and one sample, or 256 KiB of small ones.

    Args:
        dataset: Anything with ``__len__`` and ``get``, ``__getitem__`` or ``__getitems__``.

    Raises:
        SampleError: Sample 0, or later a sample of a batch, has no usable layout; the message
            names the sample and the tensor.
    """

    def __init__(self, dataset: AnyDataSet) -> None:
        self._dataset = dataset
        self._item = item_reader(dataset)
        self._length = len(cast("Any", dataset))
        self._layout: SampleLayout | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def layout(self) -> SampleLayout:
        """Layout of sample 0, read on first use."""
        if self._layout is None:
            self._layout = SampleLayout.of(self._item(0))
        return self._layout

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors: the keys of sample 0, else those the data set declares."""
        layout = self.layout
        return layout.names if layout.is_named else declared_names(self._dataset) or layout.names

    def get_batch(self, indices: Tensor | Sequence[int]) -> tuple[Tensor, ...]:
        """Return the given samples stacked, one row each."""
        return self.stacked(indices, _new)

    def stacked(self, indices: Tensor | Sequence[int], empty: Empty) -> tuple[Tensor, ...]:
        """Return the given samples stacked in memory that ``empty`` makes."""
        wanted = check_indices(indices, self._length).tolist()
        layout = self.layout
        parts = tuple(
            empty((len(wanted), *shape), dtype)
            for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
        )
        samples = iter(self._samples(wanted))
        step = max(1, min(HELD_SAMPLES, HELD_BYTES // max(1, layout.n_bytes)))
        for first in range(0, len(wanted), step):
            indices = wanted[first : first + step]
            held = list(itertools.islice(samples, step))
            if len(held) != len(indices):  # it would look like the end of them
                raise SampleError(f"reading sample {indices[len(held)]} raised StopIteration")
            columns = layout.columns_of(held, indices)
            for position, part in enumerate(parts):
                rows = part[first : first + len(indices)]
                layout.stacked(columns[position], indices, position, rows)
        return parts

    def _samples(self, wanted: list[int]) -> Iterable[object]:
        bulk = getattr(self._dataset, "__getitems__", None)
        if bulk is None:
            return map(self._item, wanted)
        samples: list[object] = bulk(wanted)
        if len(samples) != len(wanted):
            raise SampleError(f"__getitems__ gave {len(samples)} samples for {len(wanted)} indices")
        return samples


def as_batch_dataset(dataset: AnyDataSet) -> BatchDataSet:
    """Return ``dataset`` itself when it gives batches, else an adapter around it.

    Raises:
        TypeError: The object has no length, or no way to read samples.
    """
    if not hasattr(dataset, "__len__"):
        raise not_a_dataset(dataset)
    if hasattr(dataset, "get_batch"):
        return cast("BatchDataSet", dataset)
    return DataSetAdapter(dataset)
