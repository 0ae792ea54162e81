"""The door to ``flodl_sys``: what this machine has, without torch and without a GPU runtime."""

from flodl_sys import GpuInfo, detect_gpus

__all__ = ["GpuInfo", "detect_gpus"]
