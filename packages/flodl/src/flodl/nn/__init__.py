"""torch's layers, losses and optimizers, and what torch lacks.

``import flodl.nn as nn`` can stand where ``import torch.nn as nn`` stood: names that are not here
are torch's. Modules and losses that torch has are torch's own classes. The schedulers are pure
functions of the step, also those whose names torch uses for schedulers that own an optimizer:
``OneCycleLR``, ``ExponentialLR``, ``MultiStepLR`` and ``CyclicLR``.
"""

from typing import Any

import torch.nn as _torch_nn
from torch.nn import ELU as ELU
from torch.nn import GELU as GELU
from torch.nn import GRU as GRU
from torch.nn import LSTM as LSTM
from torch.nn import SELU as SELU
from torch.nn import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from torch.nn import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from torch.nn import AlphaDropout as AlphaDropout
from torch.nn import AvgPool1d as AvgPool1d
from torch.nn import AvgPool2d as AvgPool2d
from torch.nn import BatchNorm1d as BatchNorm1d
from torch.nn import BatchNorm2d as BatchNorm2d
from torch.nn import BatchNorm3d as BatchNorm3d
from torch.nn import BCELoss as BCELoss
from torch.nn import BCEWithLogitsLoss as BCEWithLogitsLoss
from torch.nn import Bilinear as Bilinear
from torch.nn import Conv1d as Conv1d
from torch.nn import Conv2d as Conv2d
from torch.nn import Conv3d as Conv3d
from torch.nn import ConvTranspose1d as ConvTranspose1d
from torch.nn import ConvTranspose2d as ConvTranspose2d
from torch.nn import ConvTranspose3d as ConvTranspose3d
from torch.nn import CosineEmbeddingLoss as CosineEmbeddingLoss
from torch.nn import CrossEntropyLoss as CrossEntropyLoss
from torch.nn import CTCLoss as CTCLoss
from torch.nn import Dropout as Dropout
from torch.nn import Dropout2d as Dropout2d
from torch.nn import Embedding as Embedding
from torch.nn import EmbeddingBag as EmbeddingBag
from torch.nn import Flatten as Flatten
from torch.nn import Fold as Fold
from torch.nn import GroupNorm as GroupNorm
from torch.nn import GRUCell as GRUCell
from torch.nn import Hardsigmoid as Hardsigmoid
from torch.nn import Hardswish as Hardswish
from torch.nn import HingeEmbeddingLoss as HingeEmbeddingLoss
from torch.nn import Identity as Identity
from torch.nn import InstanceNorm1d as InstanceNorm1d
from torch.nn import InstanceNorm2d as InstanceNorm2d
from torch.nn import InstanceNorm3d as InstanceNorm3d
from torch.nn import KLDivLoss as KLDivLoss
from torch.nn import L1Loss as L1Loss
from torch.nn import LayerNorm as LayerNorm
from torch.nn import LeakyReLU as LeakyReLU
from torch.nn import Linear as Linear
from torch.nn import LogSoftmax as LogSoftmax
from torch.nn import LSTMCell as LSTMCell
from torch.nn import MarginRankingLoss as MarginRankingLoss
from torch.nn import MaxPool1d as MaxPool1d
from torch.nn import MaxPool2d as MaxPool2d
from torch.nn import Mish as Mish
from torch.nn import Module as Module
from torch.nn import ModuleDict as ModuleDict
from torch.nn import ModuleList as ModuleList
from torch.nn import MSELoss as MSELoss
from torch.nn import MultiheadAttention as MultiheadAttention
from torch.nn import NLLLoss as NLLLoss
from torch.nn import Parameter as Parameter
from torch.nn import PixelShuffle as PixelShuffle
from torch.nn import PixelUnshuffle as PixelUnshuffle
from torch.nn import PoissonNLLLoss as PoissonNLLLoss
from torch.nn import PReLU as PReLU
from torch.nn import ReflectionPad2d as ReflectionPad2d
from torch.nn import ReLU as ReLU
from torch.nn import RMSNorm as RMSNorm
from torch.nn import Sequential as Sequential
from torch.nn import Sigmoid as Sigmoid
from torch.nn import SiLU as SiLU
from torch.nn import SmoothL1Loss as SmoothL1Loss
from torch.nn import Softmax as Softmax
from torch.nn import Softplus as Softplus
from torch.nn import Tanh as Tanh
from torch.nn import TripletMarginLoss as TripletMarginLoss
from torch.nn import Unfold as Unfold
from torch.nn import Upsample as Upsample
from torch.nn import ZeroPad2d as ZeroPad2d

from flodl.nn import init as init
from flodl.nn.attention import SelfAttention as SelfAttention
from flodl.nn.autocast import AutocastGuard as AutocastGuard
from flodl.nn.autocast import autocast as autocast
from flodl.nn.autocast import is_autocast_enabled as is_autocast_enabled
from flodl.nn.blur import GaussianBlur as GaussianBlur
from flodl.nn.blur import gaussian_blur_2d as gaussian_blur_2d
from flodl.nn.clip import clip_grad_norm as clip_grad_norm
from flodl.nn.clip import clip_grad_value as clip_grad_value
from flodl.nn.focal import FocalLoss as FocalLoss
from flodl.nn.focal import focal_loss as focal_loss
from flodl.nn.focal import sigmoid_focal_loss as sigmoid_focal_loss
from flodl.nn.freezing import freeze as freeze
from flodl.nn.freezing import frozen_names as frozen_names
from flodl.nn.freezing import is_frozen as is_frozen
from flodl.nn.freezing import unfreeze as unfreeze
from flodl.nn.halting import LearnedHalt as LearnedHalt
from flodl.nn.halting import ThresholdHalt as ThresholdHalt
from flodl.nn.losses import bce_loss as bce_loss
from flodl.nn.losses import bce_with_logits_loss as bce_with_logits_loss
from flodl.nn.losses import cosine_embedding_loss as cosine_embedding_loss
from flodl.nn.losses import cross_entropy_loss as cross_entropy_loss
from flodl.nn.losses import ctc_loss as ctc_loss
from flodl.nn.losses import hinge_embedding_loss as hinge_embedding_loss
from flodl.nn.losses import kl_div_loss as kl_div_loss
from flodl.nn.losses import l1_loss as l1_loss
from flodl.nn.losses import margin_ranking_loss as margin_ranking_loss
from flodl.nn.losses import mse_loss as mse_loss
from flodl.nn.losses import nll_loss as nll_loss
from flodl.nn.losses import poisson_nll_loss as poisson_nll_loss
from flodl.nn.losses import smooth_l1_loss as smooth_l1_loss
from flodl.nn.losses import triplet_margin_loss as triplet_margin_loss
from flodl.nn.norm import BatchNorm as BatchNorm
from flodl.nn.norm import InstanceNorm as InstanceNorm
from flodl.nn.norm import check_norm_stats as check_norm_stats
from flodl.nn.precision import GradScaler as GradScaler
from flodl.nn.precision import StepResult as StepResult
from flodl.nn.precision import cast_parameters as cast_parameters
from flodl.nn.precision import scaler_for as scaler_for
from flodl.nn.protocols import DetachableState as DetachableState
from flodl.nn.protocols import HasGraph as HasGraph
from flodl.nn.protocols import HasStructuralHash as HasStructuralHash
from flodl.nn.protocols import NamedInputModule as NamedInputModule
from flodl.nn.protocols import Resettable as Resettable
from flodl.nn.recurrent import First as First
from flodl.nn.recurrent import Unrolled as Unrolled
from flodl.nn.routing import ArgmaxSelector as ArgmaxSelector
from flodl.nn.routing import FixedSelector as FixedSelector
from flodl.nn.routing import SigmoidRouter as SigmoidRouter
from flodl.nn.routing import SoftmaxRouter as SoftmaxRouter
from flodl.nn.schedulers import CosineScheduler as CosineScheduler
from flodl.nn.schedulers import CyclicLR as CyclicLR
from flodl.nn.schedulers import ExponentialLR as ExponentialLR
from flodl.nn.schedulers import MultiStepLR as MultiStepLR
from flodl.nn.schedulers import OneCycleLR as OneCycleLR
from flodl.nn.schedulers import PlateauScheduler as PlateauScheduler
from flodl.nn.schedulers import ScaledScheduler as ScaledScheduler
from flodl.nn.schedulers import Scheduler as Scheduler
from flodl.nn.schedulers import SequentialScheduler as SequentialScheduler
from flodl.nn.schedulers import StepDecay as StepDecay
from flodl.nn.schedulers import WarmupScheduler as WarmupScheduler
from flodl.nn.schedulers import apply as apply
from flodl.nn.schedulers import as_torch as as_torch
from flodl.nn.schedulers import lr_table as lr_table
from flodl.nn.shaping import Detach as Detach
from flodl.nn.shaping import Lambda as Lambda
from flodl.nn.shaping import Reshape as Reshape
from flodl.nn.shaping import StateAdd as StateAdd
from flodl.optim import SGD as SGD
from flodl.optim import Adagrad as Adagrad
from flodl.optim import Adam as Adam
from flodl.optim import AdamW as AdamW
from flodl.optim import CapturableAdagrad as CapturableAdagrad
from flodl.optim import NAdam as NAdam
from flodl.optim import RAdam as RAdam
from flodl.optim import RMSprop as RMSprop
from flodl.optim import scale_lr as scale_lr
from flodl.optim import set_group_lr as set_group_lr
from flodl.optim import set_lr as set_lr

__all__ = [  # noqa: RUF022 - plain order
    "Adagrad",
    "Adam",
    "AdamW",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AlphaDropout",
    "ArgmaxSelector",
    "AutocastGuard",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "CTCLoss",
    "CapturableAdagrad",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss",
    "CosineScheduler",
    "CrossEntropyLoss",
    "CyclicLR",
    "Detach",
    "DetachableState",
    "Dropout",
    "Dropout2d",
    "ELU",
    "Embedding",
    "EmbeddingBag",
    "ExponentialLR",
    "First",
    "FixedSelector",
    "Flatten",
    "FocalLoss",
    "Fold",
    "GELU",
    "GRU",
    "GRUCell",
    "GaussianBlur",
    "GradScaler",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "HasGraph",
    "HasStructuralHash",
    "HingeEmbeddingLoss",
    "Identity",
    "InstanceNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "L1Loss",
    "LSTM",
    "LSTMCell",
    "Lambda",
    "LayerNorm",
    "LeakyReLU",
    "LearnedHalt",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "MaxPool1d",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiStepLR",
    "MultiheadAttention",
    "NAdam",
    "NLLLoss",
    "NamedInputModule",
    "OneCycleLR",
    "PReLU",
    "Parameter",
    "PixelShuffle",
    "PixelUnshuffle",
    "PlateauScheduler",
    "PoissonNLLLoss",
    "RAdam",
    "RMSNorm",
    "RMSprop",
    "ReLU",
    "ReflectionPad2d",
    "Resettable",
    "Reshape",
    "SELU",
    "SGD",
    "ScaledScheduler",
    "Scheduler",
    "SelfAttention",
    "Sequential",
    "SequentialScheduler",
    "SiLU",
    "Sigmoid",
    "SigmoidRouter",
    "SmoothL1Loss",
    "Softmax",
    "SoftmaxRouter",
    "Softplus",
    "StateAdd",
    "StepDecay",
    "StepResult",
    "Tanh",
    "ThresholdHalt",
    "TripletMarginLoss",
    "Unfold",
    "Unrolled",
    "Upsample",
    "WarmupScheduler",
    "ZeroPad2d",
    "apply",
    "as_torch",
    "autocast",
    "bce_loss",
    "bce_with_logits_loss",
    "cast_parameters",
    "check_norm_stats",
    "clip_grad_norm",
    "clip_grad_value",
    "cosine_embedding_loss",
    "cross_entropy_loss",
    "ctc_loss",
    "focal_loss",
    "freeze",
    "frozen_names",
    "gaussian_blur_2d",
    "hinge_embedding_loss",
    "init",
    "is_autocast_enabled",
    "is_frozen",
    "kl_div_loss",
    "l1_loss",
    "lr_table",
    "margin_ranking_loss",
    "mse_loss",
    "nll_loss",
    "poisson_nll_loss",
    "scale_lr",
    "scaler_for",
    "set_group_lr",
    "set_lr",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
    "triplet_margin_loss",
    "unfreeze",
]


def __getattr__(name: str) -> Any:
    try:
        return getattr(_torch_nn, name)
    except AttributeError:
        raise AttributeError(f"neither flodl.nn nor torch.nn has {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_torch_nn)})
