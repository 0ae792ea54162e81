"""Tensor face of the averaging kernels: native where flodl-sys has them, else torch operations.

Both backends give the same bits, so ranks with and without the native part may work together:
float32 with each multiply and each add rounded on its own (torch's own ``add(alpha=)`` and
``lerp`` fuse the two and differ in the last bit). Two things are not fixed: which NaN comes out
where one goes in, and, on the torch backend, denormals after ``torch.set_flush_denormal(True)``.

Tensors are contiguous CPU tensors of one shape; gradients are not tracked. What does not fit
raises `flodl_sys.errors.KernelArgumentError` and changes nothing.
"""

import functools
import itertools
import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch

from flodl_sys import kernels
from flodl_sys.errors import KernelArgumentError
from flodl_sys.kernels import Span

__all__ = [
    "Backend",
    "NativeBackend",
    "TorchBackend",
    "default_backend",
    "easgd_blend_",
    "pack_bf16",
    "unpack_bf16",
    "weighted_average",
]

_log = logging.getLogger(__name__)


def weighted_average(
    tensors: Sequence[torch.Tensor],
    weights: Sequence[float],
    *,
    out: torch.Tensor | None = None,
    backend: "Backend | None" = None,
) -> torch.Tensor:
    """Returns ``w[0]*x[0] + w[1]*x[1] + ...`` in float32, summed from the left.

    The weights need not sum to one, and a zero does not hide a NaN.

    Args:
        tensors: One or more, all float32 or all bfloat16 (widened exactly).
        weights: One for each tensor, rounded to float32.
        out: float32 result; may be one of the tensors, but share memory with none in part.
        backend: `default_backend` by default.
    """
    if not tensors:
        raise KernelArgumentError("tensors is empty: an average needs one or more")
    if len(tensors) != len(weights):
        raise KernelArgumentError(f"weights has {len(weights)} values for {len(tensors)} tensors")
    dtype = tensors[0].dtype
    if dtype not in {torch.float32, torch.bfloat16}:
        raise KernelArgumentError(f"tensors[0] is {dtype}, not torch.float32 or torch.bfloat16")
    out = _result(out, like=tensors[0], dtype=torch.float32)
    for k, tensor in enumerate(tensors):
        _check(tensor, f"tensors[{k}]", dtype, out.shape)
        _check_apart(tensor, f"tensors[{k}]", out, "out")
    _choose(backend).weighted_average(tensors, weights, out)
    return out


def easgd_blend_(
    p: torch.Tensor, c: torch.Tensor, alpha: float, *, backend: "Backend | None" = None
) -> torch.Tensor:
    """Sets float32 ``p`` to ``(1-alpha)*p + alpha*c`` in place and returns it.

    An ``alpha`` of 1 copies ``c``, one of 0 leaves ``p`` alone. ``c`` may be ``p``, but not share
    a part of its memory.
    """
    if not 0 <= alpha <= 1:
        raise KernelArgumentError(f"alpha is {alpha!r}, not a number from 0 to 1")
    _check(p, "p", torch.float32, p.shape)
    _check(c, "c", torch.float32, p.shape)
    _check_apart(c, "c", p, "p")
    _choose(backend).easgd_blend_(p, c, alpha)
    return p


def pack_bf16(
    x: torch.Tensor, *, out: torch.Tensor | None = None, backend: "Backend | None" = None
) -> torch.Tensor:
    """Rounds float32 to bfloat16, to nearest with ties to even; a NaN stays a NaN."""
    out = _result(out, like=x, dtype=torch.bfloat16)
    _check(x, "x", torch.float32, out.shape)
    _check_apart(x, "x", out, "out")
    _choose(backend).pack_bf16(x, out)
    return out


def unpack_bf16(
    x: torch.Tensor, *, out: torch.Tensor | None = None, backend: "Backend | None" = None
) -> torch.Tensor:
    """Widens bfloat16 to float32, exactly."""
    out = _result(out, like=x, dtype=torch.float32)
    _check(x, "x", torch.bfloat16, out.shape)
    _check_apart(x, "x", out, "out")
    _choose(backend).unpack_bf16(x, out)
    return out


class Backend(ABC):
    """Computes on operands that the functions above have checked."""

    @abstractmethod
    def weighted_average(
        self, tensors: Sequence[torch.Tensor], weights: Sequence[float], out: torch.Tensor
    ) -> None:
        """Fills ``out``, which may be one of the tensors."""

    @abstractmethod
    def easgd_blend_(self, p: torch.Tensor, c: torch.Tensor, alpha: float) -> None:
        """Changes ``p``; ``c`` may be the same tensor."""

    @abstractmethod
    def pack_bf16(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """Fills ``out``."""

    @abstractmethod
    def unpack_bf16(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """Fills ``out``."""


@final
class NativeBackend(Backend):
    """The kernels of flodl-sys, on as many threads as torch is set to use."""

    def weighted_average(
        self, tensors: Sequence[torch.Tensor], weights: Sequence[float], out: torch.Tensor
    ) -> None:
        """See `Backend`."""
        is_bf16 = tensors[0].dtype is torch.bfloat16
        average = kernels.weighted_average_bf16 if is_bf16 else kernels.weighted_average
        spans = [_span(tensor) for tensor in tensors]
        average(spans, weights, _span(out), threads=torch.get_num_threads())
        _mark_changed(out)

    def easgd_blend_(self, p: torch.Tensor, c: torch.Tensor, alpha: float) -> None:
        """See `Backend`."""
        kernels.easgd_blend(_span(p), _span(c), alpha, threads=torch.get_num_threads())
        _mark_changed(p)

    def pack_bf16(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """See `Backend`."""
        kernels.pack_bf16(_span(x), _span(out), threads=torch.get_num_threads())
        _mark_changed(out)

    def unpack_bf16(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """See `Backend`."""
        kernels.unpack_bf16(_span(x), _span(out), threads=torch.get_num_threads())
        _mark_changed(out)


@final
class TorchBackend(Backend):
    """The same arithmetic by torch operations: one pass over memory for each of them."""

    @torch.no_grad()
    def weighted_average(
        self, tensors: Sequence[torch.Tensor], weights: Sequence[float], out: torch.Tensor
    ) -> None:
        """See `Backend`."""
        is_read_later = any(tensor.data_ptr() == out.data_ptr() for tensor in tensors[1:])
        total = torch.empty_like(out) if is_read_later else out
        total.copy_(tensors[0]).mul_(weights[0])
        term = torch.empty_like(out)
        for tensor, weight in itertools.islice(zip(tensors, weights, strict=True), 1, None):
            total.add_(term.copy_(tensor).mul_(weight))
        if is_read_later:
            out.copy_(total)

    @torch.no_grad()
    def easgd_blend_(self, p: torch.Tensor, c: torch.Tensor, alpha: float) -> None:
        """See `Backend`."""
        keep, take = _float32(1.0 - alpha), _float32(alpha)
        if take == 0:
            return
        if keep == 0:
            p.copy_(c)
            return
        term = c * take
        p.mul_(keep).add_(term)

    @torch.no_grad()
    def pack_bf16(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """See `Backend`."""
        out.copy_(x)

    @torch.no_grad()
    def unpack_bf16(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """See `Backend`."""
        out.copy_(x)


@functools.cache
def default_backend() -> Backend:
    """Returns the native backend, or torch's where there is none, which is logged once."""
    found = kernels.status()
    if found.is_native:
        return NativeBackend()
    _log.warning(
        "averaging runs as torch operations, several times slower than the native kernels: %s (%s)",
        found.reason,
        found.hint,
    )
    return TorchBackend()


def _choose(backend: Backend | None) -> Backend:
    return default_backend() if backend is None else backend


def _result(out: torch.Tensor | None, *, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if out is None:
        return torch.empty(like.shape, dtype=dtype)
    _check(out, "out", dtype, like.shape)
    return out


def _check(tensor: torch.Tensor, name: str, dtype: torch.dtype, shape: torch.Size) -> None:
    if tensor.device.type != "cpu":
        raise KernelArgumentError(f"{name} is on {tensor.device}, not on the CPU")
    if tensor.dtype is not dtype:
        raise KernelArgumentError(f"{name} is {tensor.dtype}, not {dtype}")
    if tensor.shape != shape:
        raise KernelArgumentError(f"{name} has shape {tuple(tensor.shape)}, not {tuple(shape)}")
    if not tensor.is_contiguous():
        raise KernelArgumentError(
            f"{name} has strides {tensor.stride()} for shape {tuple(shape)}: not contiguous",
            hint="average flat buffers, or pass tensor.contiguous() where it is only read",
        )


def _check_apart(one: torch.Tensor, one_name: str, other: torch.Tensor, other_name: str) -> None:
    begin, other_begin = one.data_ptr(), other.data_ptr()
    end, other_end = begin + one.nbytes, other_begin + other.nbytes
    if begin >= other_end or other_begin >= end:
        return
    if (begin, end) != (other_begin, other_end) or one.dtype is not other.dtype:
        raise KernelArgumentError(
            f"{one_name} and {other_name} share a part of their memory",
            hint="give the same tensor or two that do not overlap",
        )


def _span(tensor: torch.Tensor) -> Span:
    return Span(tensor.data_ptr(), tensor.numel())


def _mark_changed(tensor: torch.Tensor) -> None:
    # autograd must notice that values it saved are gone, as after any in-place operation
    torch.autograd.graph.increment_version(tensor)


def _float32(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
