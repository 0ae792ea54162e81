"""The one call users make."""

from flodl.trainer.builder import Trainer as Trainer
from flodl.trainer.builder import TrainerBuilder as TrainerBuilder
from flodl.trainer.config import LoaderOptions as LoaderOptions
from flodl.trainer.config import TrainerConfig as TrainerConfig
from flodl.trainer.handle import TrainHandle as TrainHandle
from flodl.trainer.policy import EpochCallbackPolicy as EpochCallbackPolicy
from flodl.trainer.report import RunReport as RunReport
from flodl.trainer.report import RunStatus as RunStatus
from flodl.trainer.state import TrainedState as TrainedState
from flodl.trainer.stopping import StopTraining as StopTraining

__all__ = [
    "EpochCallbackPolicy",
    "LoaderOptions",
    "RunReport",
    "RunStatus",
    "StopTraining",
    "TrainHandle",
    "TrainedState",
    "Trainer",
    "TrainerBuilder",
    "TrainerConfig",
]
