"""Use of the installed wheel, with nothing else around: GPUs, kernels over plain buffers, NCCL."""

import array
import sys

import flodl_sys
from flodl_sys import kernels, nccl
from flodl_sys.errors import NcclNotFoundError

loaded = [name for name in sys.modules if name.startswith("flodl_sys.") or name == "flodl_sys"]
assert "flodl_sys._core" not in loaded, loaded
assert all(isinstance(gpu, flodl_sys.GpuInfo) for gpu in flodl_sys.detect_gpus())
assert kernels.status().is_native, kernels.status()
first, second = array.array("f", [1, 2, 3]), array.array("f", [5, 6, 7])
mean = array.array("f", [0, 0, 0])
kernels.weighted_average([first, second], [0.25, 0.75], out=mean)
assert list(mean) == [4, 5, 6], mean
try:
    print("NCCL", nccl.version())
except NcclNotFoundError as error:
    assert "libnccl" in str(error), error
print("flodl-sys works alone")
