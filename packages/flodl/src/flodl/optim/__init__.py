"""torch's optimizers with rates, groups and names that are easy to handle, fused by default."""

from flodl.optim.adagrad import CapturableAdagrad as CapturableAdagrad
from flodl.optim.capture import CaptureSupport as CaptureSupport
from flodl.optim.capture import capture_support as capture_support
from flodl.optim.capture import prepare_for_capture as prepare_for_capture
from flodl.optim.groups import GroupsBuilder as GroupsBuilder
from flodl.optim.groups import GroupView as GroupView
from flodl.optim.implementation import implementation as implementation
from flodl.optim.mixin import OptimizerMixin as OptimizerMixin
from flodl.optim.mixin import optimizers_with_state_for as optimizers_with_state_for
from flodl.optim.optimizers import SGD as SGD
from flodl.optim.optimizers import Adagrad as Adagrad
from flodl.optim.optimizers import Adam as Adam
from flodl.optim.optimizers import AdamW as AdamW
from flodl.optim.optimizers import NAdam as NAdam
from flodl.optim.optimizers import RAdam as RAdam
from flodl.optim.optimizers import RMSprop as RMSprop
from flodl.optim.rates import get_lr as get_lr
from flodl.optim.rates import scale_lr as scale_lr
from flodl.optim.rates import set_group_lr as set_group_lr
from flodl.optim.rates import set_lr as set_lr

__all__ = [  # noqa: RUF022 - plain order
    "Adagrad",
    "Adam",
    "AdamW",
    "CapturableAdagrad",
    "CaptureSupport",
    "GroupView",
    "GroupsBuilder",
    "NAdam",
    "OptimizerMixin",
    "RAdam",
    "RMSprop",
    "SGD",
    "capture_support",
    "get_lr",
    "implementation",
    "optimizers_with_state_for",
    "prepare_for_capture",
    "scale_lr",
    "set_group_lr",
    "set_lr",
]
