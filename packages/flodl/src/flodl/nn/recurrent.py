"""Recurrent layers in a data flow."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class First(nn.Module):
    """Returns the first item of what a module returns, such as the sequence of an LSTM."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the first item.

        Raises:
            TypeError: The module returned no tuple or list, or an empty one.
        """
        result = self.module(*args, **kwargs)
        if not isinstance(result, tuple | list) or not result:
            raise TypeError(
                f"First({type(self.module).__name__}): it returned {type(result).__name__}, "
                "not a tuple with a first item; use the module without First"
            )
        first: Tensor = result[0]
        return first
