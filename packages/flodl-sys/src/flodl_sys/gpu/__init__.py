"""Which GPUs this machine has, found without loading a GPU runtime."""

from flodl_sys.gpu.detect import detect_gpus as detect_gpus
from flodl_sys.gpu.detect import detect_gpus_physical as detect_gpus_physical
from flodl_sys.gpu.detect import scan_gpus as scan_gpus
from flodl_sys.gpu.model import GpuInfo as GpuInfo
from flodl_sys.gpu.model import GpuNote as GpuNote
from flodl_sys.gpu.model import GpuScan as GpuScan
from flodl_sys.gpu.model import NoteKind as NoteKind
from flodl_sys.gpu.model import Vendor as Vendor

__all__ = [
    "GpuInfo",
    "GpuNote",
    "GpuScan",
    "NoteKind",
    "Vendor",
    "detect_gpus",
    "detect_gpus_physical",
    "scan_gpus",
]
