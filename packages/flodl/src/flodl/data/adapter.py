"""Batches from data sets that give one sample at a time, and the one door to any data set."""

from __future__ import annotations

from dataclasses import dataclass
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

    from flodl.data.dataset import AnyDataSet, BatchDataSet

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

    def values_of(self, sample: object, index: int) -> list[object]:
        """Return the values of another sample, in the order of this layout.

        Raises:
            SampleError: It holds other names or another number of values.
        """
        names, values = fields_of(sample)
        if not self.is_named and names is None and len(values) == len(self.names):
            return values
        if self.is_named and names is not None and set(names) == set(self.names):
            by_name = dict(zip(names, values, strict=True))
            return [by_name[name] for name in self.names]
        found = f"{len(values)} tensors" if names is None else f"the names {sorted(names)}"
        wanted = f"names {sorted(self.names)}" if self.is_named else f"{len(self.names)} tensors"
        raise SampleError(f"sample {index} has {found}: sample 0 has {wanted}", hint=_ONE_LAYOUT)

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


class DataSetAdapter:
    """Batches of a data set that gives samples one at a time.

    Output tensors are allocated once per batch from the layout of sample 0, and samples are
    copied in and dropped one by one: the peak is one batch and one sample.

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
        wanted = check_indices(indices, self._length).tolist()
        layout = self.layout
        parts = tuple(
            torch.empty((len(wanted), *shape), dtype=dtype)
            for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
        )
        rows = [part.unbind(0) for part in parts]
        for row, (index, sample) in enumerate(zip(wanted, self._samples(wanted), strict=True)):
            for position, value in enumerate(layout.values_of(sample, index)):
                tensor = _field(value, index, position)
                layout.check(tensor, index, position)
                rows[position][row].copy_(tensor)
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
