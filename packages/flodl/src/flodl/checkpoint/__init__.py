"""Checkpoint files: writing them so that nothing is lost, reading them so that nothing is run."""

from flodl.checkpoint.files import write_atomically as write_atomically
from flodl.checkpoint.info import CheckpointInfo as CheckpointInfo
from flodl.checkpoint.info import checkpoint_info as checkpoint_info
from flodl.checkpoint.info import checkpoint_keys as checkpoint_keys
from flodl.checkpoint.info import checkpoint_version as checkpoint_version
from flodl.checkpoint.load import LoadReport as LoadReport
from flodl.checkpoint.load import load_checkpoint as load_checkpoint
from flodl.checkpoint.migrate import OptimMigrateReport as OptimMigrateReport
from flodl.checkpoint.migrate import migrate_optim_state_file as migrate_optim_state_file
from flodl.checkpoint.migrate_model import MigrateReport as MigrateReport
from flodl.checkpoint.migrate_model import migrate_checkpoint as migrate_checkpoint
from flodl.checkpoint.optim import Stateful as Stateful
from flodl.checkpoint.optim import load_state as load_state
from flodl.checkpoint.optim import load_state_file as load_state_file
from flodl.checkpoint.optim import save_state as save_state
from flodl.checkpoint.optim import save_state_file as save_state_file
from flodl.checkpoint.save import save_checkpoint as save_checkpoint
from flodl.checkpoint.snapshot import ModelSnapshot as ModelSnapshot
from flodl.checkpoint.snapshot import TensorCopy as TensorCopy
from flodl.checkpoint.snapshot import snapshot_cpu as snapshot_cpu

__all__ = [
    "CheckpointInfo",
    "LoadReport",
    "MigrateReport",
    "ModelSnapshot",
    "OptimMigrateReport",
    "Stateful",
    "TensorCopy",
    "checkpoint_info",
    "checkpoint_keys",
    "checkpoint_version",
    "load_checkpoint",
    "load_state",
    "load_state_file",
    "migrate_checkpoint",
    "migrate_optim_state_file",
    "save_checkpoint",
    "save_state",
    "save_state_file",
    "snapshot_cpu",
    "write_atomically",
]
