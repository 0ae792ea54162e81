"""A graph's own loop on several devices: replicas in this process, or one rank a process."""

from flodl.distributed.replica.config import DdpConfig as DdpConfig
from flodl.distributed.replica.spreading import auto_distribute as auto_distribute
from flodl.distributed.replica.spreading import distribute as distribute

__all__ = ["DdpConfig", "auto_distribute", "distribute"]
