"""flodl: models as readable data flow, and one call that trains them anywhere.

Names load their module on first use, so importing this package costs nothing and touches nothing.
"""

from __future__ import annotations

import importlib
from sys import modules as loaded_modules  # flodl.sys takes the name "sys" here
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flodl.checkpoint import LoadReport as LoadReport
    from flodl.checkpoint import ModelSnapshot as ModelSnapshot
    from flodl.checkpoint import checkpoint_info as checkpoint_info
    from flodl.checkpoint import checkpoint_keys as checkpoint_keys
    from flodl.checkpoint import checkpoint_version as checkpoint_version
    from flodl.checkpoint import load_checkpoint as load_checkpoint
    from flodl.checkpoint import load_state_file as load_state_file
    from flodl.checkpoint import migrate_checkpoint as migrate_checkpoint
    from flodl.checkpoint import save_checkpoint as save_checkpoint
    from flodl.checkpoint import save_state_file as save_state_file
    from flodl.checkpoint import snapshot_cpu as snapshot_cpu
    from flodl.core.errors import CaptureError as CaptureError
    from flodl.core.errors import CheckpointError as CheckpointError
    from flodl.core.errors import ConfigError as ConfigError
    from flodl.core.errors import CudaBeforeRunError as CudaBeforeRunError
    from flodl.core.errors import DataError as DataError
    from flodl.core.errors import ExportError as ExportError
    from flodl.core.errors import FlodlError as FlodlError
    from flodl.core.errors import FlowError as FlowError
    from flodl.core.errors import FlowWarning as FlowWarning
    from flodl.core.errors import FormationError as FormationError
    from flodl.core.errors import GraphInputError as GraphInputError
    from flodl.core.errors import GraphPathError as GraphPathError
    from flodl.core.errors import JoinRejected as JoinRejected
    from flodl.core.errors import LaunchError as LaunchError
    from flodl.core.errors import NoDataError as NoDataError
    from flodl.core.errors import NodeError as NodeError
    from flodl.core.errors import NonFiniteError as NonFiniteError
    from flodl.core.errors import RankError as RankError
    from flodl.core.errors import RunFailed as RunFailed
    from flodl.core.errors import RunInterrupted as RunInterrupted
    from flodl.core.errors import StateShapeError as StateShapeError
    from flodl.core.errors import StepContractError as StepContractError
    from flodl.core.errors import SwitchIndexError as SwitchIndexError
    from flodl.core.errors import TopologyError as TopologyError
    from flodl.core.errors import TraceError as TraceError
    from flodl.core.rng import Rng as Rng
    from flodl.core.seeding import derive_seed as derive_seed
    from flodl.core.seeding import gpu_manual_seed_all as gpu_manual_seed_all
    from flodl.core.seeding import manual_seed as manual_seed
    from flodl.core.seeding import seed_everything as seed_everything
    from flodl.data import Batch as Batch
    from flodl.data import DataLoader as DataLoader
    from flodl.data import TensorDataSet as TensorDataSet
    from flodl.device.gpu_graph import GpuGraph as GpuGraph
    from flodl.distributed.averaging.outer import DiLoCo as DiLoCo
    from flodl.distributed.averaging.outer import OuterAvg as OuterAvg
    from flodl.distributed.averaging.outer import SlowMo as SlowMo
    from flodl.distributed.collective.comms import ReduceOp as ReduceOp
    from flodl.distributed.collective.errors import GradientMismatchError as GradientMismatchError
    from flodl.distributed.collective.errors import NcclAborted as NcclAborted
    from flodl.distributed.collective.errors import NcclError as NcclError
    from flodl.distributed.collective.fake_nccl import FakeNcclComms as FakeNcclComms
    from flodl.distributed.collective.nccl import NcclAbortHandle as NcclAbortHandle
    from flodl.distributed.collective.nccl import NcclComms as NcclComms
    from flodl.distributed.collective.nccl import NcclRankComm as NcclRankComm
    from flodl.distributed.collective.nccl import NcclUniqueId as NcclUniqueId
    from flodl.distributed.collective.rendezvous import Rendezvous as Rendezvous
    from flodl.distributed.config import ElasticConfig as ElasticConfig
    from flodl.distributed.config import ElCheConfig as ElCheConfig
    from flodl.distributed.config import ElCheMode as ElCheMode
    from flodl.distributed.elche.guards import NoGuard as NoGuard
    from flodl.distributed.elche.guards import TrendGuard as TrendGuard
    from flodl.distributed.elche.msf import MsfGuard as MsfGuard
    from flodl.distributed.launch.child import exit_if_worker_role as exit_if_worker_role
    from flodl.distributed.replica.config import DdpConfig as DdpConfig
    from flodl.distributed.worker.worker import Worker as Worker
    from flodl.engine.background import CpuWorker as CpuWorker
    from flodl.engine.config import CaptureConfig as CaptureConfig
    from flodl.engine.equality import verify_step as verify_step
    from flodl.engine.step import TrainStep as TrainStep
    from flodl.graph import FlowBuilder as FlowBuilder
    from flodl.graph import Graph as Graph
    from flodl.graph import LoopBody as LoopBody
    from flodl.graph import LossContext as LossContext
    from flodl.graph import MergeOp as MergeOp
    from flodl.graph import TraceEmit as TraceEmit
    from flodl.graph import register_module as register_module
    from flodl.metrics import EpochMetrics as EpochMetrics
    from flodl.metrics import drain_scalars as drain_scalars
    from flodl.metrics import record_scalar as record_scalar
    from flodl.metrics.trend import Trend as Trend
    from flodl.metrics.trend import TrendGroup as TrendGroup
    from flodl.monitor import Monitor as Monitor
    from flodl.nn import ArgmaxSelector as ArgmaxSelector
    from flodl.nn import Detach as Detach
    from flodl.nn import FixedSelector as FixedSelector
    from flodl.nn import HasGraph as HasGraph
    from flodl.nn import Identity as Identity
    from flodl.nn import Lambda as Lambda
    from flodl.nn import LearnedHalt as LearnedHalt
    from flodl.nn import Reshape as Reshape
    from flodl.nn import SigmoidRouter as SigmoidRouter
    from flodl.nn import SoftmaxRouter as SoftmaxRouter
    from flodl.nn import StateAdd as StateAdd
    from flodl.nn import ThresholdHalt as ThresholdHalt
    from flodl.trainer import EpochCallbackPolicy as EpochCallbackPolicy
    from flodl.trainer import RunReport as RunReport
    from flodl.trainer import StopTraining as StopTraining
    from flodl.trainer import TrainedState as TrainedState
    from flodl.trainer import Trainer as Trainer
    from flodl.trainer import TrainerConfig as TrainerConfig
    from flodl.trainer import TrainHandle as TrainHandle
    from flodl.trainer.old_names import Ddp as Ddp

_HOMES = {
    "flodl.checkpoint": (
        "LoadReport",
        "ModelSnapshot",
        "checkpoint_info",
        "checkpoint_keys",
        "checkpoint_version",
        "load_checkpoint",
        "load_state_file",
        "migrate_checkpoint",
        "save_checkpoint",
        "save_state_file",
        "snapshot_cpu",
    ),
    "flodl.core.errors": (
        "CaptureError",
        "CheckpointError",
        "ConfigError",
        "CudaBeforeRunError",
        "DataError",
        "ExportError",
        "FlodlError",
        "FlowError",
        "FlowWarning",
        "FormationError",
        "GraphInputError",
        "GraphPathError",
        "JoinRejected",
        "LaunchError",
        "NoDataError",
        "NodeError",
        "NonFiniteError",
        "RankError",
        "RunFailed",
        "RunInterrupted",
        "StateShapeError",
        "StepContractError",
        "SwitchIndexError",
        "TopologyError",
        "TraceError",
    ),
    "flodl.core.rng": ("Rng",),
    "flodl.core.seeding": (
        "derive_seed",
        "gpu_manual_seed_all",
        "manual_seed",
        "seed_everything",
    ),
    "flodl.data": (
        "Batch",
        "DataLoader",
        "TensorDataSet",
    ),
    "flodl.device.gpu_graph": ("GpuGraph",),
    "flodl.distributed.averaging.outer": (
        "DiLoCo",
        "OuterAvg",
        "SlowMo",
    ),
    "flodl.distributed.collective.comms": ("ReduceOp",),
    "flodl.distributed.collective.errors": (
        "GradientMismatchError",
        "NcclAborted",
        "NcclError",
    ),
    "flodl.distributed.collective.fake_nccl": ("FakeNcclComms",),
    "flodl.distributed.collective.nccl": (
        "NcclAbortHandle",
        "NcclComms",
        "NcclRankComm",
        "NcclUniqueId",
    ),
    "flodl.distributed.collective.rendezvous": ("Rendezvous",),
    "flodl.distributed.config": (
        "ElCheConfig",
        "ElCheMode",
        "ElasticConfig",
    ),
    "flodl.distributed.elche.guards": (
        "NoGuard",
        "TrendGuard",
    ),
    "flodl.distributed.elche.msf": ("MsfGuard",),
    "flodl.distributed.launch.child": ("exit_if_worker_role",),
    "flodl.distributed.replica.config": ("DdpConfig",),
    "flodl.distributed.worker.worker": ("Worker",),
    "flodl.engine.background": ("CpuWorker",),
    "flodl.engine.config": ("CaptureConfig",),
    "flodl.engine.equality": ("verify_step",),
    "flodl.engine.step": ("TrainStep",),
    "flodl.graph": (
        "FlowBuilder",
        "Graph",
        "LoopBody",
        "LossContext",
        "MergeOp",
        "TraceEmit",
        "register_module",
    ),
    "flodl.metrics": (
        "EpochMetrics",
        "drain_scalars",
        "record_scalar",
    ),
    "flodl.metrics.trend": (
        "Trend",
        "TrendGroup",
    ),
    "flodl.monitor": ("Monitor",),
    "flodl.nn": (
        "ArgmaxSelector",
        "Detach",
        "FixedSelector",
        "HasGraph",
        "Identity",
        "Lambda",
        "LearnedHalt",
        "Reshape",
        "SigmoidRouter",
        "SoftmaxRouter",
        "StateAdd",
        "ThresholdHalt",
    ),
    "flodl.trainer": (
        "EpochCallbackPolicy",
        "RunReport",
        "StopTraining",
        "TrainHandle",
        "TrainedState",
        "Trainer",
        "TrainerConfig",
    ),
    "flodl.trainer.old_names": (
        "ApplyPolicy",
        "AverageBackend",
        "Ddp",
        "DdpBuilder",
        "DdpHandle",
        "DdpRunConfig",
        "GpuWorker",
        "NesterovMomentum",
        "SlowMomentum",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ArgmaxSelector",
    "Batch",
    "CaptureConfig",
    "CaptureError",
    "CheckpointError",
    "ConfigError",
    "CpuWorker",
    "CudaBeforeRunError",
    "DataError",
    "DataLoader",
    "Ddp",
    "DdpConfig",
    "Detach",
    "DiLoCo",
    "ElCheConfig",
    "ElCheMode",
    "ElasticConfig",
    "EpochCallbackPolicy",
    "EpochMetrics",
    "ExportError",
    "FakeNcclComms",
    "FixedSelector",
    "FlodlError",
    "FlowBuilder",
    "FlowError",
    "FlowWarning",
    "FormationError",
    "GpuGraph",
    "GradientMismatchError",
    "Graph",
    "GraphInputError",
    "GraphPathError",
    "HasGraph",
    "Identity",
    "JoinRejected",
    "Lambda",
    "LaunchError",
    "LearnedHalt",
    "LoadReport",
    "LoopBody",
    "LossContext",
    "MergeOp",
    "ModelSnapshot",
    "Monitor",
    "MsfGuard",
    "NcclAbortHandle",
    "NcclAborted",
    "NcclComms",
    "NcclError",
    "NcclRankComm",
    "NcclUniqueId",
    "NoDataError",
    "NoGuard",
    "NodeError",
    "NonFiniteError",
    "OuterAvg",
    "RankError",
    "ReduceOp",
    "Rendezvous",
    "Reshape",
    "Rng",
    "RunFailed",
    "RunInterrupted",
    "RunReport",
    "SigmoidRouter",
    "SlowMo",
    "SoftmaxRouter",
    "StateAdd",
    "StateShapeError",
    "StepContractError",
    "StopTraining",
    "SwitchIndexError",
    "TensorDataSet",
    "ThresholdHalt",
    "TopologyError",
    "TraceEmit",
    "TraceError",
    "TrainHandle",
    "TrainStep",
    "TrainedState",
    "Trainer",
    "TrainerConfig",
    "Trend",
    "TrendGroup",
    "TrendGuard",
    "Worker",
    "__version__",
    "checkpoint_info",
    "checkpoint_keys",
    "checkpoint_version",
    "derive_seed",
    "drain_scalars",
    "exit_if_worker_role",
    "gpu_manual_seed_all",
    "load_checkpoint",
    "load_state_file",
    "manual_seed",
    "migrate_checkpoint",
    "record_scalar",
    "register_module",
    "save_checkpoint",
    "save_state_file",
    "seed_everything",
    "snapshot_cpu",
    "verify_step",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("flodl")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'flodl' has no attribute {name!r}")
    module = importlib.import_module(home)
    if "torch" in loaded_modules:
        _watch_gpu()
    value = getattr(module, name)
    globals()[name] = value
    return value


def _watch_gpu() -> None:
    """Have the first use of a GPU leave its stack, for the error of a run that comes after it."""
    from flodl.distributed.launch.cuda_guard import recorder

    recorder.install()


def __dir__() -> list[str]:
    return __all__
