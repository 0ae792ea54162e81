"""Learning rates as functions of the step: pure, comparable, picklable, composable."""

from flodl.nn.schedulers.base import ScaledScheduler as ScaledScheduler
from flodl.nn.schedulers.base import Scheduler as Scheduler
from flodl.nn.schedulers.compose import SequentialScheduler as SequentialScheduler
from flodl.nn.schedulers.compose import WarmupScheduler as WarmupScheduler
from flodl.nn.schedulers.cycles import CosineScheduler as CosineScheduler
from flodl.nn.schedulers.cycles import CyclicLR as CyclicLR
from flodl.nn.schedulers.cycles import OneCycleLR as OneCycleLR
from flodl.nn.schedulers.decay import ExponentialLR as ExponentialLR
from flodl.nn.schedulers.decay import MultiStepLR as MultiStepLR
from flodl.nn.schedulers.decay import StepDecay as StepDecay
from flodl.nn.schedulers.plateau import PlateauScheduler as PlateauScheduler
from flodl.nn.schedulers.use import apply as apply
from flodl.nn.schedulers.use import as_torch as as_torch
from flodl.nn.schedulers.use import lr_table as lr_table

__all__ = [
    "CosineScheduler",
    "CyclicLR",
    "ExponentialLR",
    "MultiStepLR",
    "OneCycleLR",
    "PlateauScheduler",
    "ScaledScheduler",
    "Scheduler",
    "SequentialScheduler",
    "StepDecay",
    "WarmupScheduler",
    "apply",
    "as_torch",
    "lr_table",
]
