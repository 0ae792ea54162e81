"""flodl: models as readable data flow, and one call that trains them anywhere.

Names load their module on first use, so importing this package costs nothing and touches nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flodl.checkpoint import LoadReport as LoadReport
    from flodl.checkpoint import load_checkpoint as load_checkpoint
    from flodl.checkpoint import save_checkpoint as save_checkpoint
    from flodl.core.errors import CheckpointError as CheckpointError
    from flodl.core.errors import ConfigError as ConfigError
    from flodl.core.errors import DataError as DataError
    from flodl.core.errors import FlodlError as FlodlError
    from flodl.core.errors import FlowError as FlowError
    from flodl.core.errors import NonFiniteError as NonFiniteError
    from flodl.core.errors import RunFailed as RunFailed
    from flodl.core.errors import RunInterrupted as RunInterrupted
    from flodl.core.errors import StepContractError as StepContractError
    from flodl.core.seeding import derive_seed as derive_seed
    from flodl.core.seeding import manual_seed as manual_seed
    from flodl.core.seeding import seed_everything as seed_everything
    from flodl.data import Batch as Batch
    from flodl.data import DataLoader as DataLoader
    from flodl.data import TensorDataSet as TensorDataSet
    from flodl.graph import FlowBuilder as FlowBuilder
    from flodl.graph import Graph as Graph
    from flodl.graph import MergeOp as MergeOp
    from flodl.metrics import EpochMetrics as EpochMetrics
    from flodl.metrics import record_scalar as record_scalar
    from flodl.monitor import Monitor as Monitor
    from flodl.trainer import TrainedState as TrainedState
    from flodl.trainer import Trainer as Trainer
    from flodl.trainer import TrainerConfig as TrainerConfig
    from flodl.trainer import TrainHandle as TrainHandle

_HOMES = {
    "flodl.checkpoint": ("LoadReport", "load_checkpoint", "save_checkpoint"),
    "flodl.core.errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "FlodlError",
        "FlowError",
        "NonFiniteError",
        "RunFailed",
        "RunInterrupted",
        "StepContractError",
    ),
    "flodl.core.seeding": ("derive_seed", "manual_seed", "seed_everything"),
    "flodl.data": ("Batch", "DataLoader", "TensorDataSet"),
    "flodl.graph": ("FlowBuilder", "Graph", "MergeOp"),
    "flodl.metrics": ("EpochMetrics", "record_scalar"),
    "flodl.monitor": ("Monitor",),
    "flodl.trainer": ("TrainHandle", "TrainedState", "Trainer", "TrainerConfig"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Batch",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DataLoader",
    "EpochMetrics",
    "FlodlError",
    "FlowBuilder",
    "FlowError",
    "Graph",
    "LoadReport",
    "MergeOp",
    "Monitor",
    "NonFiniteError",
    "RunFailed",
    "RunInterrupted",
    "StepContractError",
    "TensorDataSet",
    "TrainHandle",
    "TrainedState",
    "Trainer",
    "TrainerConfig",
    "__version__",
    "derive_seed",
    "load_checkpoint",
    "manual_seed",
    "record_scalar",
    "save_checkpoint",
    "seed_everything",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("flodl")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'flodl' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
