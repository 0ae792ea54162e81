"""The one call users make."""

from flodl.trainer.builder import Trainer as Trainer
from flodl.trainer.builder import TrainerBuilder as TrainerBuilder
from flodl.trainer.config import LoaderOptions as LoaderOptions
from flodl.trainer.config import TrainerConfig as TrainerConfig
from flodl.trainer.handle import TrainHandle as TrainHandle
from flodl.trainer.state import TrainedState as TrainedState

__all__ = [
    "LoaderOptions",
    "TrainHandle",
    "TrainedState",
    "Trainer",
    "TrainerBuilder",
    "TrainerConfig",
]
