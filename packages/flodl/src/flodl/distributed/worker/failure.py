"""What a rank tells of an exception that ends it: whose fault it is, and where it came from."""

from __future__ import annotations

import traceback

import torch

from flodl.core.errors import FlodlError, NonFiniteError
from flodl.distributed.protocol.messages import ErrorKind, RankError
from flodl.distributed.protocol.values import Plain, Ranges

_STICKY_CUDA = ("CUDA error", "device-side assert", "uncorrectable ECC")
_MOST_TEXT = 200_000
_MOST_ARGS = 16
_MOST_ARG_CHARS = 4096


def failure_of(
    error: BaseException, *, epoch: int = 0, step: int = 0, ranges: Ranges = ()
) -> RankError:
    """Return the message about an exception that ends a rank, short enough for one frame."""
    kind = kind_of(error)
    return RankError(
        kind=kind,
        type_name=f"{type(error).__module__}:{type(error).__qualname__}",
        args=tuple(_plain(value) for value in error.args[:_MOST_ARGS]),
        message=str(error)[:_MOST_ARG_CHARS],
        traceback=_shortened("".join(traceback.format_exception(error))),
        epoch=epoch,
        step=step,
        ranges=ranges,
        memory=_memory() if kind == "oom" else "",
    )


def kind_of(error: BaseException) -> ErrorKind:
    """Return the kind of an exception; one that is nobody else's fault is the user's."""
    if isinstance(error, torch.OutOfMemoryError):
        return "oom"
    if isinstance(error, NonFiniteError):
        return "nonfinite"
    if (
        isinstance(error, RuntimeError)
        and not isinstance(error, FlodlError)
        and any(mark in str(error) for mark in _STICKY_CUDA)
    ):
        return "cuda"
    return "user"


def _shortened(text: str) -> str:
    """Return a text with its middle left out where it is very long."""
    if len(text) <= _MOST_TEXT:
        return text
    half = _MOST_TEXT // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"


def _plain(value: object) -> Plain:
    """Return an argument as the wire takes it: itself, or how it prints."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, str):
        return value[:_MOST_ARG_CHARS]
    return repr(value)[:_MOST_ARG_CHARS]


def _memory() -> str:
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return ""
    return torch.cuda.memory_summary(abbreviated=True)
