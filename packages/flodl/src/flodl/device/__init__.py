"""Which device work runs on, its streams and memory, and graphs of its work."""

import warnings
from typing import Any

from flodl.device.gpu_graph import CaptureMode as CaptureMode
from flodl.device.gpu_graph import GpuGraph as GpuGraph
from flodl.device.gpu_graph import gpu_graph_capture as gpu_graph_capture
from flodl.device.gpu_graph import gpu_graph_pool_handle as gpu_graph_pool_handle
from flodl.device.info import default_device as default_device
from flodl.device.info import parse_device as parse_device
from flodl.device.memory import MemoryInfo as MemoryInfo
from flodl.device.memory import gpu_active_bytes as gpu_active_bytes
from flodl.device.memory import gpu_empty_cache as gpu_empty_cache
from flodl.device.memory import gpu_memory_info as gpu_memory_info
from flodl.device.memory import gpu_peak_active_bytes as gpu_peak_active_bytes
from flodl.device.memory import gpu_peak_reserved_bytes as gpu_peak_reserved_bytes
from flodl.device.memory import gpu_reset_peak_stats as gpu_reset_peak_stats
from flodl.device.memory import is_gpu_oom as is_gpu_oom
from flodl.device.streams import GpuEvent as GpuEvent
from flodl.device.streams import GpuStream as GpuStream
from flodl.device.streams import StreamGuard as StreamGuard

__all__ = [
    "CaptureMode",
    "GpuEvent",
    "GpuGraph",
    "GpuStream",
    "MemoryInfo",
    "StreamGuard",
    "default_device",
    "gpu_active_bytes",
    "gpu_empty_cache",
    "gpu_graph_capture",
    "gpu_graph_pool_handle",
    "gpu_memory_info",
    "gpu_peak_active_bytes",
    "gpu_peak_reserved_bytes",
    "gpu_reset_peak_stats",
    "is_gpu_oom",
    "parse_device",
]

_OLD_NAMES = {
    name.replace("Gpu", "Cuda", 1).replace("gpu_", "cuda_", 1): name
    for name in __all__
    if name.startswith(("Gpu", "gpu_"))
}


def __getattr__(name: str) -> Any:
    now = _OLD_NAMES.get(name)
    if now is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"flodl.device.{name} is now flodl.device.{now}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return globals()[now]
