"""Activations by the names that configs use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _linear(x: Tensor) -> Tensor:
    return x


_gelu_tanh = partial(functional.gelu, approximate="tanh")

_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_python": functional.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "quick_gelu": _quick_gelu,
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mish": functional.mish,
    "linear": _linear,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return the function of a name that a config has checked."""
    return _BY_NAME[name]
