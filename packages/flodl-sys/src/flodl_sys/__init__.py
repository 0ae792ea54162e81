"""Facts about the machine, and the native code of flodl.

Importing this package loads no shared object and nothing else heavy: each name comes from its
module on first use. The compiled kernels are in ``flodl_sys.kernels``, NCCL in ``flodl_sys.nccl``.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl_sys.gpu import GpuInfo as GpuInfo
    from flodl_sys.gpu import GpuScan as GpuScan
    from flodl_sys.gpu import Vendor as Vendor
    from flodl_sys.gpu import detect_gpus as detect_gpus
    from flodl_sys.gpu import detect_gpus_physical as detect_gpus_physical
    from flodl_sys.gpu import scan_gpus as scan_gpus

__version__ = "0.1.0"
__all__ = [
    "GpuInfo",
    "GpuScan",
    "Vendor",
    "detect_gpus",
    "detect_gpus_physical",
    "scan_gpus",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("flodl_sys.gpu"), name)
