"""A call's inputs cut into rows for each device; gradients flow back through the cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from flodl.core.errors import GraphInputError

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def rows_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the rows of a call's first tensor.

    Raises:
        GraphInputError: There is no tensor with rows.
    """
    for value in tensors_in([*args, *kwargs.values()]):
        if value.dim() > 0:
            return value.shape[0]
    raise GraphInputError(
        "a call on several devices needs an input with rows to share out, and there is none"
    )


def first_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    """Return where a call's first tensor is."""
    return next(
        (value.device for value in tensors_in([*args, *kwargs.values()])), torch.device("cpu")
    )


def scatter(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    sizes: Sequence[int],
    devices: Sequence[torch.device],
) -> list[Call | None]:
    """Return the part of a call for each device, ``None`` for one without rows.

    A call that has no rows at all goes to the first device. Tensors with as many rows as the first
    are cut; everything else goes to all devices.
    """
    rows, parts, start = sum(sizes), list[Call | None](), 0
    for size, device in zip(sizes, devices, strict=True):
        cut = _Cut(rows, start, start + size, device)
        start += size
        if size == 0 and (rows or parts):
            parts.append(None)
            continue
        parts.append((tuple(map(cut.of, args)), {name: cut.of(v) for name, v in kwargs.items()}))
    return parts


class _Cut:
    def __init__(self, rows: int, start: int, stop: int, device: torch.device) -> None:
        self._rows, self._start, self._stop, self._device = rows, start, stop, device

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dim() > 0 and value.shape[0] == self._rows:
                value = value[self._start : self._stop]
            return value.to(self._device, non_blocking=True)
        if isinstance(value, Mapping):
            return {name: self.of(item) for name, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.of, value))
        if isinstance(value, list | tuple):
            return type(value)(map(self.of, value))
        return value


def tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors of nested values, in their order."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, Mapping):
            found += tensors_in(list(value.values()))
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found
