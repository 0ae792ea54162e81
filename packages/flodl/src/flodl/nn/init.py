"""Initializers: functions that return a new tensor, beside torch's that fill one in place.

Names with a trailing underscore, and all others that are not here, are those of ``torch.nn.init``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import init as torch_init

__all__ = [
    "kaiming_normal",
    "kaiming_uniform",
    "normal",
    "orthogonal",
    "trunc_normal",
    "uniform",
    "uniform_bias",
    "xavier_normal",
    "xavier_uniform",
]


class Placement(TypedDict, total=False):
    """Where a new tensor is made: device, dtype, and the generator that its values come from."""

    device: torch.device | str | None
    dtype: torch.dtype | None
    generator: torch.Generator | None


def xavier_uniform(
    shape: Sequence[int],
    fan_in: int | None = None,
    fan_out: int | None = None,
    **placement: Unpack[Placement],
) -> Tensor:
    """Return values of U(-b, b) with ``b = sqrt(6 / (fan_in + fan_out))``.

    The fans follow from the shape, ``[out, in, d…]``, where they are not given.
    """
    bound = math.sqrt(6.0 / sum(_fans(shape, fan_in, fan_out)))
    return uniform(shape, -bound, bound, **placement)


def xavier_normal(
    shape: Sequence[int],
    fan_in: int | None = None,
    fan_out: int | None = None,
    **placement: Unpack[Placement],
) -> Tensor:
    """Return normal values of standard deviation ``sqrt(2 / (fan_in + fan_out))``."""
    return normal(shape, 0.0, math.sqrt(2.0 / sum(_fans(shape, fan_in, fan_out))), **placement)


def kaiming_uniform(
    shape: Sequence[int],
    fan_in: int | None = None,
    a: float = 0.0,
    **placement: Unpack[Placement],
) -> Tensor:
    """Return values of U(-b, b) with ``b = sqrt(3) * sqrt(2 / (1 + a²)) / sqrt(fan_in)``.

    ``a`` is the negative slope of the leaky ReLU that follows; ``sqrt(5)`` is the default of
    torch's linear layers.
    """
    bound = math.sqrt(3.0) * _kaiming_std(shape, fan_in, a)
    return uniform(shape, -bound, bound, **placement)


def kaiming_normal(
    shape: Sequence[int],
    fan_in: int | None = None,
    a: float = 0.0,
    **placement: Unpack[Placement],
) -> Tensor:
    """Return normal values of standard deviation ``sqrt(2 / (1 + a²)) / sqrt(fan_in)``."""
    return normal(shape, 0.0, _kaiming_std(shape, fan_in, a), **placement)


def uniform(
    shape: Sequence[int], low: float = 0.0, high: float = 1.0, **placement: Unpack[Placement]
) -> Tensor:
    """Return values of U(low, high)."""
    if not low <= high:
        raise ValueError(f"uniform(low={low!r}, high={high!r}): low must not be above high")
    return _filled(shape, placement, lambda t, g: torch_init.uniform_(t, low, high, generator=g))


def normal(
    shape: Sequence[int], mean: float = 0.0, std: float = 1.0, **placement: Unpack[Placement]
) -> Tensor:
    """Return values of N(mean, std²)."""
    _check_std(std)
    return _filled(shape, placement, lambda t, g: torch_init.normal_(t, mean, std, generator=g))


def orthogonal(shape: Sequence[int], gain: float = 1.0, **placement: Unpack[Placement]) -> Tensor:
    """Return a (semi-)orthogonal matrix times ``gain``; dimensions after the first are flattened.

    Raises:
        ValueError: The shape has fewer than two dimensions.
    """
    if len(shape) < 2:
        raise ValueError(f"orthogonal({list(shape)}): needs at least two dimensions")
    return _filled(shape, placement, lambda t, g: torch_init.orthogonal_(t, gain, generator=g))


def trunc_normal(
    shape: Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    **placement: Unpack[Placement],
) -> Tensor:
    """Return normal values, drawn again until they lie within bounds around the mean.

    The bounds are counted in standard deviations, so they are ``mean + a * std`` and
    ``mean + b * std``; those of torch's in-place form are absolute.
    """
    _check_std(std)
    if not a < b:
        raise ValueError(f"trunc_normal(a={a!r}, b={b!r}): a must be below b")
    low, high = mean + a * std, mean + b * std
    return _filled(
        shape,
        placement,
        lambda t, g: torch_init.trunc_normal_(t, mean, std, low, high, generator=g),
    )


def uniform_bias(fan_in: int, shape: Sequence[int], **placement: Unpack[Placement]) -> Tensor:
    """Return values of U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch's linear layers begin with."""
    _check_fan(fan_in, "fan_in")
    bound = 1.0 / math.sqrt(fan_in)
    return uniform(shape, -bound, bound, **placement)


def _filled(
    shape: Sequence[int],
    placement: Placement,
    fill: Callable[[Tensor, torch.Generator | None], Tensor],
) -> Tensor:
    tensor = torch.empty(tuple(shape), device=placement.get("device"), dtype=placement.get("dtype"))
    return fill(tensor, placement.get("generator"))


def _kaiming_std(shape: Sequence[int], fan_in: int | None, a: float) -> float:
    return math.sqrt(2.0 / (1 + a * a)) / math.sqrt(_fans(shape, fan_in, 1)[0])


def _fans(shape: Sequence[int], fan_in: int | None, fan_out: int | None) -> tuple[int, int]:
    if fan_in is None or fan_out is None:
        if len(shape) < 2:
            raise ValueError(
                f"shape {list(shape)} has no fan-in and fan-out: it needs two dimensions; "
                "pass them as fan_in= and fan_out="
            )
        field = math.prod(shape[2:])
        fan_in = shape[1] * field if fan_in is None else fan_in
        fan_out = shape[0] * field if fan_out is None else fan_out
    _check_fan(fan_in, "fan_in")
    _check_fan(fan_out, "fan_out")
    return fan_in, fan_out


def _check_fan(fan: int, name: str) -> None:
    if fan < 1:
        raise ValueError(f"{name}={fan}: must be at least 1")


def _check_std(std: float) -> None:
    if not 0 <= std < math.inf:
        raise ValueError(f"std={std!r}: must be finite and not negative")


def __getattr__(name: str) -> Any:
    return getattr(torch_init, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(torch_init)})
