"""Automatic mixed precision as a context that picks its dtype and device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


class autocast:  # noqa: N801 - torch's name
    """Runs operations in lower precision: a context manager, and a decorator.

    Args:
        dtype: By default bfloat16 where the device supports it, else float16.
        device: Device or its type; by default ``"cuda"`` where torch has one, else ``"cpu"``.
        cache_enabled: Whether casts of weights are kept within the context; by default as torch
            has it, but never while a graph is captured, because a replay would use stale ones.
    """

    def __init__(
        self,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device_type = _device_type(device)
        self.dtype = _default_dtype(self.device_type) if dtype is None else dtype
        if self.dtype not in (torch.bfloat16, torch.float16):
            raise ValueError(
                f"autocast(dtype={self.dtype}): must be torch.bfloat16 or torch.float16"
            )
        self._cache_enabled = cache_enabled
        self._entered: list[torch.amp.autocast] = []

    def __enter__(self) -> Self:
        cached = self._cache_enabled
        if cached is None:
            cached = torch.is_autocast_cache_enabled() and not _is_capturing()
        inner = torch.amp.autocast(self.device_type, self.dtype, cache_enabled=cached)
        inner.__enter__()
        self._entered.append(inner)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return ``function`` run within this context at each call."""

        @functools.wraps(function)
        def within(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            # An object a call: calls may nest and run in several threads.
            with autocast(self.dtype, self.device_type, self._cache_enabled):
                return function(*args, **kwargs)

        return within


class AutocastGuard:
    """:class:`autocast` from construction until ``close()``, or to the end of a ``with``."""

    def __init__(
        self,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        cache_enabled: bool | None = None,
    ) -> None:
        self._context: autocast | None = autocast(dtype, device, cache_enabled)
        self._context.__enter__()

    def close(self) -> None:
        """Restore what was before; later calls do nothing."""
        if self._context is not None:
            context, self._context = self._context, None
            context.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_autocast_enabled(device: torch.device | str | None = None) -> bool:
    """Return whether autocast is on for a device, by default CUDA where torch has it, else CPU."""
    return torch.is_autocast_enabled(_device_type(device))


def _device_type(device: torch.device | str | None) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device).type


def _default_dtype(device_type: str) -> torch.dtype:
    if device_type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.bfloat16


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
