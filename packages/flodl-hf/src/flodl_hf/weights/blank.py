"""Building modules without memory and without drawing values that a file or a seed replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_})


class _Undrawn(TorchFunctionMode):
    """Leaves tensors without memory as they are when values are drawn for them."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        # torch.nn.init hands itself on as one function, and names its tensor.
        if func in _DRAWS or getattr(func, "__module__", None) == "torch.nn.init":
            tensor = given["tensor"] if "tensor" in given else args[0]
            if tensor.is_meta:
                return tensor
        return func(*args, **given)


@contextmanager
def without_values() -> Iterator[None]:
    """Build modules on the ``meta`` device in the ``with`` block; no value is drawn.

    Drawing there has no effect, but the first draw imports torch's compiler, which takes seconds.
    """
    with torch.device("meta"), _Undrawn():
        yield
