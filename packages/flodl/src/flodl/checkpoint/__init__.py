"""Checkpoint files: writing them so that nothing is lost, reading them so that nothing is run."""

from flodl.checkpoint.files import write_atomically as write_atomically
from flodl.checkpoint.info import CheckpointInfo as CheckpointInfo
from flodl.checkpoint.info import checkpoint_info as checkpoint_info
from flodl.checkpoint.info import checkpoint_keys as checkpoint_keys
from flodl.checkpoint.info import checkpoint_version as checkpoint_version
from flodl.checkpoint.load import LoadReport as LoadReport
from flodl.checkpoint.load import load_checkpoint as load_checkpoint
from flodl.checkpoint.save import save_checkpoint as save_checkpoint

__all__ = [
    "CheckpointInfo",
    "LoadReport",
    "checkpoint_info",
    "checkpoint_keys",
    "checkpoint_version",
    "load_checkpoint",
    "save_checkpoint",
    "write_atomically",
]
