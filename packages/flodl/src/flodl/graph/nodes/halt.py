"""What a condition's output means: halt when it is positive."""

from __future__ import annotations

import math
import warnings
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flodl.core.errors import FlowWarning, NodeError

if TYPE_CHECKING:
    from collections.abc import Callable

_ASK = "a condition returns a tensor or a number; positive means halt"


class Reduce(StrEnum):
    """When several elements of a condition halt a loop."""

    ALL = "all"
    ANY = "any"
    MEAN = "mean"


def halts(value: Any, reduce: str, warned: set[str], node: str) -> bool:
    """Return whether to halt, reading the condition on the host.

    A value that is no number halts, with one warning a graph and loop.
    """
    if isinstance(value, Tensor):
        halt = bool(halt_flags(value.detach(), reduce))
        # The second read happens only at the end of a loop.
        strange = halt and bool(value.isnan().any())
    elif isinstance(value, bool | int | float):
        halt, strange = not value <= 0, math.isnan(value)
    else:
        raise NodeError(f"loop: the condition returned {type(value).__name__}", hint=_ASK)
    if strange and node not in warned:
        warned.add(node)
        warnings.warn(f"{node}: the halt condition is NaN; the loop halts", FlowWarning, 2)
    return halt


def halt_flags(value: Tensor, reduce: str) -> Tensor:
    """Return whether all elements, any, or their mean are positive; NaN counts as positive."""
    if reduce == Reduce.MEAN:
        return ~(value.float().mean() <= 0)
    flags = ~(value <= 0)
    return flags.any() if reduce == Reduce.ANY else flags.all()


def everywhere(stream: Tensor) -> Tensor:
    """Return the flag of a loop that has not halted."""
    return torch.ones((), dtype=torch.bool, device=stream.device)


def every_row(stream: Tensor) -> Tensor:
    """Return one such flag for each row of the batch."""
    return torch.ones(stream.shape[0], dtype=torch.bool, device=stream.device)


def still_alive(alive: Tensor, value: Any, reduce: str) -> Tensor:
    """Return the flag after a condition was asked, on the device."""
    return alive & ~halt_flags(as_tensor(value, alive), reduce)


def rows_alive(alive: Tensor, value: Any, reduce: str) -> Tensor:
    """Return the flags of all rows after a condition was asked, on the device."""
    given = as_tensor(value, alive)
    if given.dim() == 0 or given.shape[0] != alive.shape[0]:
        raise NodeError(
            f"loop: with halt='sample' the condition returned shape {list(given.shape)} for "
            f"{alive.shape[0]} rows",
            hint="return one value or more for each row",
        )
    flat = given.reshape(alive.shape[0], -1)
    if reduce == Reduce.MEAN:
        return alive & (flat.float().mean(dim=1) <= 0)
    flags = ~(flat <= 0)
    return alive & ~(flags.any(dim=1) if reduce == Reduce.ANY else flags.all(dim=1))


def take_alive(alive: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return the new state where the loop still runs, the old one where it has halted."""
    if new.shape != old.shape:
        raise NodeError(
            f"loop: the body made shape {list(new.shape)} of {list(old.shape)}",
            hint="in masked and act mode the state keeps its shape",
        )
    flags = alive.reshape(*alive.shape, *([1] * (new.dim() - alive.dim())))
    return torch.where(flags, new, old)


def remat(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Call a body so that its backward pass computes it again instead of keeping its values."""
    from torch.utils.checkpoint import checkpoint

    emit = kwargs.pop("emit", None)
    if emit is None:
        plain: Tensor = checkpoint(function, *args, use_reentrant=False, **kwargs)
        return plain
    calls = 0

    def body(*given: Any, **named: Any) -> Tensor:
        nonlocal calls
        calls += 1
        # What is published again while computing again is thrown away.
        return function(*given, **named, emit=emit if calls == 1 else type(emit).discard())

    result: Tensor = checkpoint(body, *args, use_reentrant=False, **kwargs)
    return result


def as_tensor(value: Any, like: Tensor) -> Tensor:
    """Return what a condition returned as a tensor without history, where ``like`` is."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, bool | int | float):
        return torch.full((), float(value), device=like.device)
    raise NodeError(f"loop: the condition returned {type(value).__name__}", hint=_ASK)
