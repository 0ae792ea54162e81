"""The dtype in which samples are kept and delivered, where it is not the one they are read in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from flodl.core.errors import ConfigError, SampleError
from flodl.data.assembly import empty as ordinary

if TYPE_CHECKING:
    from flodl.data.assembly import Empty, Source

StorageDtype: TypeAlias = torch.dtype | Mapping[str, torch.dtype]


def check_storage_dtype(given: object) -> None:
    """Raise unless ``given`` is a dtype, or a mapping of names to dtypes.

    Raises:
        ConfigError: It is something else.
    """
    dtypes = list(given.values()) if isinstance(given, Mapping) else [given]
    for dtype in dtypes:
        if not isinstance(dtype, torch.dtype):
            raise ConfigError(
                f"storage_dtype={given!r}: expected a torch.dtype, or a dict of tensor names to "
                "dtypes"
            )


class StoredSource:
    """The samples of another source in other dtypes.

    Args:
        base: Where the samples are.
        names: Names of the tensors.
        wanted: The dtype of all floating-point tensors, or those of some tensors by name.

    Raises:
        ConfigError: A name that no tensor has.
        SampleError: Sample 0 has a value that its dtype cannot hold.
    """

    def __init__(self, base: Source, names: tuple[str, ...], wanted: StorageDtype) -> None:
        self.base = base
        self.is_in_memory = base.is_in_memory
        self.count = base.count
        self.names = base.names
        first = base.gather(base.place(torch.zeros(1, dtype=torch.int64)), ordinary)
        self._labels = names
        self._dtypes = _chosen(first, names, wanted)
        self.sample_bytes = sum(tensor.nbytes for tensor in self.cast(first))

    def place(self, order: Tensor) -> Tensor:
        """Return the order of an epoch in the terms of ``gather``."""
        return self.base.place(order)

    def gather(self, rows: Tensor, empty: Empty) -> tuple[Tensor, ...]:
        """Return the tensors of one batch in their dtypes.

        Raises:
            SampleError: A value that its dtype cannot hold.
        """
        return self.cast(self.base.gather(rows, ordinary), empty)

    def cast(self, tensors: tuple[Tensor, ...], empty: Empty = ordinary) -> tuple[Tensor, ...]:
        """Return rows as they are kept.

        Raises:
            SampleError: A value that its dtype cannot hold.
        """
        return tuple(
            _converted(name, tensor, dtype, empty)
            for name, tensor, dtype in zip(self._labels, tensors, self._dtypes, strict=True)
        )


def _chosen(
    first: tuple[Tensor, ...], names: tuple[str, ...], wanted: StorageDtype
) -> tuple[torch.dtype, ...]:
    if isinstance(wanted, torch.dtype):
        return tuple(wanted if part.is_floating_point() else part.dtype for part in first)
    for name in wanted:
        if name not in names:
            raise ConfigError(
                f"storage_dtype of {name!r}: no such tensor; names: {', '.join(names)}"
            )
    return tuple(wanted.get(name, part.dtype) for name, part in zip(names, first, strict=True))


def _converted(name: str, tensor: Tensor, dtype: torch.dtype, empty: Empty) -> Tensor:
    found = empty(tensor.shape, dtype).copy_(tensor)
    if dtype == tensor.dtype:
        return found
    if dtype.is_floating_point and tensor.is_floating_point():  # rounding is what was asked for
        kept = found.isfinite() == tensor.to(found.device).isfinite()
    else:
        kept = found.to(tensor.dtype) == tensor.to(found.device)
    if not kept.all():
        place = (~kept).nonzero()[0]
        raise SampleError(
            f"storage_dtype={dtype} of {name!r}: it cannot hold {tensor[tuple(place)].item()}",
            hint="choose a dtype that holds all values, and convert in device_transform",
        )
    return found
