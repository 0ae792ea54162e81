"""Arithmetic of the CPU plane over plain memory: averages, the EASGD blend, the bf16 wire form.

An operand is anything with the buffer protocol (NumPy arrays, ``array``, ``memoryview``;
C-contiguous, any shape, any alignment) or a `Span`. float32 memory has format ``f``; bfloat16 has
no format of its own and travels as 16-bit integers (``H`` or ``h``) that hold its bits.

All results are the same bits on every processor and with every number of threads: float32 with
each multiply and each add rounded on its own, in the stated order; denormals are kept whatever the
caller's thread is set to. Only which NaN comes out of arithmetic on NaNs is not fixed. Kernels run
without the GIL, on threads that the first call starts; a forked child starts its own.

Every function raises `NativeUnavailableError` in a pure build and `KernelArgumentError` for
operands that do not fit together.
"""

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from flodl_sys import native
from flodl_sys.errors import KernelArgumentError
from flodl_sys.native import NativeStatus, status

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    Source: TypeAlias = "ReadableBuffer | Span"
    Target: TypeAlias = "WriteableBuffer | Span"

__all__ = [
    "NativeStatus",
    "Span",
    "available_cores",
    "easgd_blend",
    "pack_bf16",
    "status",
    "supported_isas",
    "unpack_bf16",
    "weighted_average",
    "weighted_average_bf16",
]


class Span(NamedTuple):
    """Memory given by its address and its number of elements, such as a tensor's ``data_ptr()``.

    Nothing can be checked about it: the caller vouches for the element type and keeps it alive.
    """

    address: int
    length: int


def available_cores() -> int:
    """Returns how many cores this process may run on: its affinity where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def supported_isas() -> list[str]:
    """Returns the instruction sets that this build has kernels for and this processor runs.

    The last one is what ``isa=None`` means. They differ in speed only.
    """
    return native.core.supported_isas()


def weighted_average(
    buffers: "Sequence[Source]",
    weights: Sequence[float],
    out: "Target",
    *,
    threads: int | None = None,
    isa: str | None = None,
) -> None:
    """Sets ``out`` to ``w[0]*x[0] + w[1]*x[1] + ...`` over float32 buffers, summed from the left.

    The weights are rounded to float32 and used as they are: they need not sum to one, and a zero
    does not hide a NaN. A running sum is ``weighted_average([sum, x], [1, w], out=sum)``.

    Args:
        buffers: One or more, all with as many elements as ``out``.
        weights: One for each buffer.
        out: May be one of the buffers; any other overlap is an error.
        threads: Most threads to use; `available_cores` by default. Short buffers use fewer.
        isa: One of `supported_isas`; the best by default.
    """
    native.core.weighted_average_f32(buffers, weights, out, _threads(threads), _isa(isa))


def weighted_average_bf16(
    buffers: "Sequence[Source]",
    weights: Sequence[float],
    out: "Target",
    *,
    threads: int | None = None,
    isa: str | None = None,
) -> None:
    """Does `weighted_average` over bfloat16 buffers, widened exactly, into a float32 ``out``.

    ``out`` must not overlap a buffer.
    """
    native.core.weighted_average_bf16(buffers, weights, out, _threads(threads), _isa(isa))


def easgd_blend(
    p: "Target", c: "Source", alpha: float, *, threads: int | None = None, isa: str | None = None
) -> None:
    """Sets ``p`` to ``(1-alpha)*p + alpha*c`` in place, over float32 buffers.

    ``1-alpha`` is computed in double precision; it and ``alpha`` are then rounded to float32.
    An ``alpha`` of 1 copies ``c`` (a NaN in ``p`` is then gone), one of 0 leaves ``p`` alone.

    Args:
        p: Changed in place.
        c: The center to blend toward; ``p`` itself or memory apart from it.
        alpha: From 0 to 1.
        threads: Most threads to use; `available_cores` by default. Short buffers use fewer.
        isa: One of `supported_isas`; the best by default.
    """
    if not (math.isfinite(alpha) and 0 <= alpha <= 1):
        raise KernelArgumentError(f"alpha is {alpha!r}, not a number from 0 to 1")
    native.core.blend(p, c, alpha, _threads(threads), _isa(isa))


def pack_bf16(
    source: "Source", out: "Target", *, threads: int | None = None, isa: str | None = None
) -> None:
    """Rounds float32 to bfloat16 bits, to nearest with ties to even.

    Values past the largest bfloat16 become infinite. A NaN stays a NaN of the same sign, made
    quiet; its payload loses the lower 16 bits. ``out`` must not overlap ``source``.
    """
    native.core.pack_bf16(source, out, _threads(threads), _isa(isa))


def unpack_bf16(
    source: "Source", out: "Target", *, threads: int | None = None, isa: str | None = None
) -> None:
    """Widens bfloat16 bits to float32, exactly. ``out`` must not overlap ``source``."""
    native.core.unpack_bf16(source, out, _threads(threads), _isa(isa))


def _threads(asked: int | None) -> int:
    if asked is None:
        return available_cores()
    if asked < 1:
        raise KernelArgumentError(f"threads is {asked}, not a number of threads >= 1")
    return asked


def _isa(asked: str | None) -> str:
    return native.core.supported_isas()[-1] if asked is None else asked
