"""What a rank is asked to train: the user's objects and settings, handed down by the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.data import BatchDataSet, DataSet
from flodl.distributed.averaging.outer import OuterFactory
from flodl.distributed.averaging.plan import InnerState
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.distributed.worker.worker import EpochFn
from flodl.engine.config import ModelFactory, OptimFactory, StepConfig, TrainStepFn
from flodl.engine.evaluate import EvalFn
from flodl.engine.schedules import GivenScheduler

CheckpointFn = Callable[[int, nn.Module], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run, as every rank of it sees it."""

    model_factory: ModelFactory
    optim_factory: OptimFactory
    train_step: TrainStepFn | None
    """``None`` where the loop is the user's own."""
    dataset: DataSet | BatchDataSet
    batch_size: int
    """Samples per step and rank."""
    num_epochs: int
    seed: int
    elche: ElCheConfig
    elastic: ElasticConfig
    step: StepConfig
    """How a step treats gradients and loss, without what ranks add to it."""
    scheduler: GivenScheduler | None = None
    """Learning rates, or what makes them from the optimizer or the number of ranks."""
    ranks: int = 1
    """Ranks that the run starts with."""
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Further options of ``DataLoader``."""
    outer: OuterFactory = None
    inner_state: InnerState = "keep"
    quarantines: bool = True
    """Whether a window with a loss or parameter that is not finite counts for nothing."""
    epoch_fn: EpochFn | None = None
    checkpoint_fn: CheckpointFn | None = None
    eval_fn: EvalFn | None = None
    eval_dataset: DataSet | BatchDataSet | None = None
    names: Sequence[str] | None = None
    save_path: Path | None = None
    checkpoint_keep: int | None = 3
    """Numbered checkpoints that stay; ``None``: all."""
    resume_from: Path | None = None

    def built_model(self, device: torch.device) -> nn.Module:
        """Return the model that the factory makes, on its device.

        Raises:
            StepContractError: The factory returned something else.
        """
        model = self.model_factory(device)
        if not isinstance(model, nn.Module):
            raise StepContractError(
                f"the model factory returned {type(model).__name__}, not a torch.nn.Module"
            )
        refuse_sharded(model)
        return model.to(device)

    def built_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer that the factory makes for the model.

        Raises:
            StepContractError: The factory returned something else.
        """
        optimizer = self.optim_factory(model.parameters())
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise StepContractError(
                f"the optimizer factory returned {type(optimizer).__name__}, "
                "not a torch.optim.Optimizer"
            )
        return optimizer


def refuse_sharded(model: nn.Module) -> None:
    """Raise for a model that is spread over processes already.

    Raises:
        StepContractError: It is, as a whole or in one of its tensors.
    """
    kinds = {name or "the model": type(module) for name, module in model.named_modules()}
    kinds |= {name: type(value) for name, value in model.named_parameters()}
    kinds |= {name: type(value.data) for name, value in model.named_parameters()}
    for name, kind in kinds.items():
        if kind.__name__ in _SPREAD:
            raise StepContractError(
                f"the model factory returned a model that is spread over processes: {name} is a "
                f"{kind.__name__}",
                hint="return the whole model: every rank trains a whole one, and "
                'checkpoint_mode="sharded" spreads only the files',
            )


_SPREAD = ("DTensor", "FullyShardedDataParallel", "FlatParameter")
"""Names of torch's classes: most programs never load the modules that define them."""
