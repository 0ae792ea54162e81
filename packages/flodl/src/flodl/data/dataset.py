"""What a data set is: samples by index, batches by indices, and tensors held in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import torch
from torch import Tensor

from flodl.core.errors import ConfigError, SampleError
from flodl.data.batch import check_names, default_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch.utils.data import Dataset as TorchDataset

    Field: TypeAlias = Tensor | NDArray[Any] | float
    Sample: TypeAlias = Field | Sequence[Field] | Mapping[str, Field]
    Fields: TypeAlias = Sequence[Tensor | NDArray[Any]] | Mapping[str, Tensor | NDArray[Any]]
    AnyDataSet: TypeAlias = "DataSet | BatchDataSet | ItemDataSet | TorchDataset[Any]"


class DataSet(Protocol):
    """Samples one at a time.

    A sample is a tensor, a sequence of tensors, or a dict whose keys name them; numpy arrays and
    plain numbers are taken too. All samples have the same shapes and dtypes. ``get`` is called
    from background threads when batches are loaded ahead.

    A set with ``is_fixed = True`` says that every read of a sample gives the same values, so that a
    loader may read it once and keep it on its device.
    """

    def __len__(self) -> int: ...

    def get(self, index: int) -> Sample:
        """Return sample ``index``; raise ``IndexError`` outside ``[0, len)``."""
        ...


class BatchDataSet(Protocol):
    """Whole batches at once, for sources that are faster in bulk.

    ``get_batch`` is called from background threads when batches are loaded ahead. ``is_fixed`` is
    that of ``DataSet``.
    """

    def __len__(self) -> int: ...

    def get_batch(self, indices: Tensor) -> Fields:
        """Return tensors (or arrays) with one row for each of ``indices``, in their order.

        ``indices`` is a one-dimensional int64 tensor on the CPU. A dict names the tensors; else
        a list or tuple ``names`` of the data set does. Raise ``IndexError`` outside ``[0, len)``.
        """
        ...


class ItemDataSet(Protocol):
    """Samples through ``dataset[index]``, as torch's map-style data sets give them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def as_tensor(value: object) -> Tensor:
    """Return ``value`` as a tensor, sharing memory with arrays that may be written to."""
    if isinstance(value, Tensor):
        return value
    flags = getattr(value, "flags", None)
    if flags is not None and hasattr(value, "copy") and not flags.writeable:
        value = value.copy()  # torch has no read-only tensors and warns of the aliasing
    return torch.as_tensor(value)


def as_tensors(values: Iterable[object], source: str) -> list[Tensor]:
    """Return values as tensors.

    Raises:
        SampleError: One is no tensor; the message says what gave it.
    """
    tensors = []
    for value in values:
        try:
            tensors.append(as_tensor(value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise SampleError(
                f"{source} a {type(value).__name__}, which is no tensor: {error}"
            ) from error
    return tensors


def fields_of(sample: object) -> tuple[tuple[str, ...] | None, list[object]]:
    """Return the names (of a dict) and the values of a sample or of what ``get_batch`` gave."""
    if isinstance(sample, Mapping):
        return tuple(str(name) for name in sample), list(sample.values())
    if isinstance(sample, list | tuple):
        return None, list(sample)
    return None, [sample]


def declared_names(dataset: object) -> tuple[str, ...] | None:
    """Return the ``names`` that a data set has as a list or tuple, or ``None``."""
    names = getattr(dataset, "names", None)
    return tuple(names) if isinstance(names, list | tuple) else None


def is_fixed(dataset: object) -> bool:
    """Return whether a data set says that every read of a sample gives the same values.

    Only such a set may be read once and kept: one that augments at random would lose that.
    """
    return getattr(dataset, "is_fixed", False) is True


def check_indices(indices: Tensor | Sequence[int], length: int) -> Tensor:
    """Return ``indices`` as an int64 tensor, once all lie in ``[0, length)``.

    Raises:
        IndexError: An index outside; negative ones do not count from the end.
        TypeError: Indices that are not whole numbers.
    """
    given = torch.as_tensor(indices)
    if not given.numel():
        return torch.empty(0, dtype=torch.int64)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"indices of type {given.dtype}: expected whole numbers")
    low, high = (int(bound) for bound in torch.aminmax(given))
    if low < 0 or high >= length:
        raise IndexError(f"index {low if low < 0 else high} is outside the data set: [0, {length})")
    return given.to(torch.int64)


def item_reader(dataset: AnyDataSet) -> Callable[[int], Any]:
    """Return the function that reads one sample of any kind of data set.

    Raises:
        TypeError: The object is no data set.
    """
    if hasattr(dataset, "get"):
        get: Callable[[int], Any] = dataset.get
        return get
    if hasattr(dataset, "__getitem__"):
        item: Callable[[int], Any] = dataset.__getitem__
        return item
    if hasattr(dataset, "get_batch"):
        get_batch: Callable[[Tensor], Any] = dataset.get_batch
        return partial(_only_row, get_batch)
    raise not_a_dataset(dataset)


def _only_row(get_batch: Callable[[Tensor], Any], index: int) -> object:
    names, values = fields_of(get_batch(torch.tensor([index])))
    rows = [as_tensor(value)[0] for value in values]
    return rows if names is None else dict(zip(names, rows, strict=True))


def not_a_dataset(value: object) -> TypeError:
    """Return the error for an object that offers none of the ways to read samples."""
    instead = "; DataLoader.from_iterable reads it in its own order"
    return TypeError(
        f"{type(value).__name__} is not a data set: expected __len__ and one of get(index), "
        f"get_batch(indices), __getitem__(index){instead if hasattr(value, '__iter__') else ''}"
    )


class InMemoryDataSet(ABC):
    """A data set whose samples are the rows of tensors in memory.

    Loaders gather from ``tensors`` directly and never call ``get`` or ``get_batch``: a subclass
    says what its tensors are and may not change how samples are read.
    """

    is_fixed = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        reading = {"get", "get_batch", "__getitem__", "__getitems__", "__len__"} & set(vars(cls))
        if reading:
            raise TypeError(
                f"class {cls.__name__} redefines {', '.join(sorted(reading))}, which a loader of "
                "an in-memory data set never calls: write a class with get_batch(indices), or "
                "give the loader a transform"
            )

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Name of each tensor."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, each with one row per sample."""

    @final
    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    @final
    def get(self, index: int) -> tuple[Tensor, ...]:
        """Return one row of each tensor; raise ``IndexError`` outside ``[0, len)``."""
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is outside the data set: [0, {len(self)})")
        return tuple(tensor[index] for tensor in self.tensors)

    @final
    def get_batch(self, indices: Tensor | Sequence[int]) -> tuple[Tensor, ...]:
        """Return copies of the given rows; raise ``IndexError`` outside ``[0, len)``."""
        rows = check_indices(indices, len(self))
        return tuple(tensor.index_select(0, rows.to(tensor.device)) for tensor in self.tensors)

    @final
    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.get(index)

    @final
    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        """Return several samples, as torch's loader asks for them."""
        return list(zip(*self.get_batch(indices), strict=True))


def in_memory_tensors(dataset: object) -> tuple[Tensor, ...] | None:
    """Return the tensors whose rows are exactly the samples of ``dataset``, if it has such.

    Only torch's own ``TensorDataset`` counts, not its subclasses: their way of reading a sample
    may be the point of them.
    """
    if isinstance(dataset, InMemoryDataSet):
        return dataset.tensors
    if type(dataset) is torch.utils.data.TensorDataset:
        tensors: tuple[Tensor, ...] = dataset.tensors
        return tensors or None
    return None


class TensorDataSet(InMemoryDataSet):
    """A data set of tensors (or arrays) given by position or by name, one row per sample.

    Args:
        tensors: Tensors named ``"0"``, ``"1"``, ... in batches.
        named: Tensors with names of their own.

    Raises:
        ConfigError: None given, or both forms.
        SampleError: Row counts that differ.
    """

    def __init__(self, *tensors: object, **named: object) -> None:
        if bool(tensors) == bool(named):
            given = "both" if tensors else "neither"
            raise ConfigError(
                f"TensorDataSet was given {given} of tensors by position and by name",
                hint="write TensorDataSet(x, y) or TensorDataSet(image=x, label=y)",
            )
        values = tensors or tuple(named.values())
        self._tensors = tuple(as_tensor(value).detach() for value in values)
        self._names = check_names(list(named) or default_names(len(values)), len(values))
        rows = [tensor.shape[0] if tensor.dim() else None for tensor in self._tensors]
        if len(set(rows)) > 1 or rows[0] is None:
            raise SampleError(
                f"tensors of a TensorDataSet have {rows} rows: expected the same number"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each tensor."""
        return self._names

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, each with one row per sample."""
        return self._tensors
