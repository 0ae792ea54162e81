"""What a model definition is: the model, its step, and the set-ups it is trained with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from flodl import Batch
from flodl.engine.config import Scheduler

DataName = Literal["mnist", "shakespeare"]
Metric = Literal["accuracy", "cross_entropy", "mse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """Which part of which data set a set-up trains on."""

    name: DataName
    seq_len: int | None = None
    """Characters per sample, for text."""
    characters: int | None = None
    """Length of the text's beginning that is used; ``None``: all of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    """What a loaded data set is, as results record it."""

    name: str
    sha256: str
    """Over names, shapes and values of the training and the test part."""
    n_train: int
    n_test: int
    vocabulary: int | None
    """Number of distinct characters, for text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """One way to train a model: data and amount."""

    data: DataSpec
    epochs: int
    batch_size: int = 64
    floor: float | None = None
    """Worst acceptable evaluation after ``epochs`` epochs in solo mode."""


BuildFn = Callable[[torch.device, DataFacts], nn.Module]
StepFn = Callable[[nn.Module, Batch], torch.Tensor]
OptimizerFn = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
ScheduleFn = Callable[[float, int], Scheduler]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelDef:
    """A model with everything a run of it needs.

    Other packages register theirs under the entry-point group ``ddp_bench.models``.
    """

    name: str
    description: str
    """One line, for lists and headings."""
    build: BuildFn
    """``(device, data facts) -> module``."""
    train_step: StepFn
    """``(model, batch) -> loss``."""
    eval_step: StepFn
    """``(model, batch) -> mean of the metric over the batch``."""
    metric: Metric
    higher_is_better: bool
    optimizer: OptimizerFn
    """``(parameters, learning rate) -> optimizer``."""
    lr: float
    schedule: ScheduleFn | None = None
    """``(learning rate, steps per epoch) -> scheduler``; ``None``: constant."""
    clip_value: float | None = None
    """Limit of each gradient element."""
    defaults: Setup
    """The published set-up, on the real data."""
    mini: Setup
    """The small set-up, on the data inside the package."""
