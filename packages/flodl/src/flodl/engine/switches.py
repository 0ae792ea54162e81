# ruff: noqa: SLF001 - the public questions cost ten times as much, in every step
"""The switches of torch that choose kernels and dtypes, and are part of a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_C: Any = torch._C
_NO_MODES = (0,)
# reading the older switches raises when the newer ones were set
_precision: Any = getattr(_C, "_get_fp32_precision_getter", None)


def torch_settings() -> tuple[Any, ...]:
    """Return the switches as they are in this thread."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        _C._get_cudnn_benchmark(),
        _C._get_cudnn_deterministic(),
        _C._get_cudnn_enabled(),
        _C._get_deterministic_algorithms(),
        _C._get_flash_sdp_enabled(),
        _C._get_math_sdp_enabled(),
        _C._get_mem_efficient_sdp_enabled(),
        _C._get_cudnn_sdp_enabled(),
        *_C._get_sdp_priority_order(),
        _C._get_math_sdp_allow_fp16_bf16_reduction(),
        _C._get_cublas_allow_fp16_reduced_precision_reduction(),
        _C._get_cublas_allow_bf16_reduced_precision_reduction(),
        _C._get_cublas_allow_fp16_accumulation(),
        int(_C._get_blas_preferred_backend()),
        torch.is_anomaly_enabled(),
        _C._autograd._top_saved_tensors_default_hooks(True),
        *_modes(_C._len_torch_function_stack(), _C._get_function_stack_at),
        *_modes(_C._len_torch_dispatch_stack(), _C._get_dispatch_stack_at),
        *_precisions(),
    )


def _modes(count: int, at: Callable[[int], Any]) -> Sequence[Any]:
    """Return what the modes in force do; a block around each step makes others of the same kind."""
    if not count:
        return _NO_MODES
    modes = [at(index) for index in range(count)]
    return [count, *((type(mode), getattr(mode, "device", None)) for mode in modes)]


def _precisions() -> tuple[Any, ...]:
    if _precision is None:
        return (_C._get_cublas_allow_tf32(), _C._get_cudnn_allow_tf32())
    return (_precision("cuda", "matmul"), _precision("cuda", "conv"), _precision("cuda", "rnn"))


def rounds_float32() -> bool:
    """Return whether matrix products of float32 are computed with fewer bits."""
    return _precisions()[0] in (True, "tf32", "bf16")
