"""The form in which values travel: float32, or bfloat16 with what it rounds away kept back.

Weights never travel in bfloat16: rounding one is larger than its movement in a window. Ranks then
send differences to the last consensus, which all hold in float32.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from flodl.distributed.averaging import kernels

__all__ = ["Residual", "Wire", "packed", "unpacked", "wire_dtype"]

Wire: TypeAlias = Literal["fp32", "bf16"]


def wire_dtype(wire: Wire) -> torch.dtype:
    """Return the dtype of what travels."""
    return torch.bfloat16 if wire == "bf16" else torch.float32


def packed(values: Tensor, out: Tensor) -> None:
    """Write float32 values in the dtype of ``out``."""
    if out.dtype is torch.bfloat16:
        kernels.pack_bf16(values, out=out)
    else:
        out.copy_(values)


def unpacked(received: Tensor, out: Tensor) -> None:
    """Write what was received, of either dtype, as float32."""
    if received.dtype is torch.bfloat16:
        kernels.unpack_bf16(received, out=out)
    else:
        out.copy_(received)


@final
class Residual:
    """Rounds averages to bfloat16 and adds what that lost to the next ones (error feedback)."""

    def __init__(self, numel: int, *, is_on: bool) -> None:
        self.values = torch.zeros(numel) if is_on else None
        """What is still owed, ``None`` without feedback."""

    def packed(self, average: Tensor, out: Tensor) -> None:
        """Write ``average``, which is overwritten, plus what is owed in the dtype of ``out``."""
        if out.dtype is not torch.bfloat16 or self.values is None:
            packed(average, out)
            return
        average.add_(self.values)
        kernels.pack_bf16(average, out=out)
        kernels.unpack_bf16(out, out=self.values)
        torch.sub(average, self.values, out=self.values)
