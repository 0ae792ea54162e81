"""The model that all arms train, its data, and its step, each the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ddp_bench.data.source import DataSource, TaskData
from ddp_bench.definition import ModelDef
from ddp_bench.registry import choose_models, load_models
from ddp_bench.scaling.slow import Pacer
from ddp_bench.scaling.task import OptimizerName, Task
from ddp_bench.scaling.trace import Recorder
from flodl.core.seeding import derive_seed, manual_seed

DEVICE = torch.device("cpu")
SGD_LR, SGD_MOMENTUM = 0.05, 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A model definition with its data."""

    definition: ModelDef
    data: TaskData
    optimizer_name: OptimizerName = "own"

    @classmethod
    def named(cls, name: str, optimizer: OptimizerName = "own") -> Subject:
        """Return a benchmark model on the data that is shipped with flodl."""
        (definition,) = choose_models(name, load_models())
        data = DataSource("mini").load(definition.mini.data)
        return cls(definition=definition, data=data, optimizer_name=optimizer)

    @classmethod
    def of(cls, task: Task) -> Subject:
        """Return what a task trains."""
        return cls.named(task.model, task.optimizer)

    @property
    def batch_size(self) -> int:
        """Samples per step and rank."""
        return self.definition.mini.batch_size

    def build(self, device: torch.device = DEVICE) -> nn.Module:
        """Return a model with whatever weights the random stream gives."""
        return self.definition.build(device, self.data.facts)

    def seeded(self, seed: int) -> nn.Module:
        """Return a model with the weights that a run of flodl with this seed starts from."""
        manual_seed(derive_seed(seed, 0, "weights"))
        return self.build()

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """Return the optimizer of the set-up, or the other one that was asked for."""
        if self.optimizer_name == "sgd":
            return torch.optim.SGD(parameters, lr=SGD_LR, momentum=SGD_MOMENTUM)
        return self.definition.optimizer(parameters, self.definition.lr)

    def shards(self, seed: int, rank: int, ranks: int) -> Iterator[dict[str, Tensor]]:
        """Yield batches of a rank's equal share without end, shuffled in each epoch."""
        train = self.data.train
        epoch = 0
        while True:
            generator = torch.Generator().manual_seed(derive_seed(seed, epoch, "order"))
            order = torch.randperm(len(train), generator=generator)[rank::ranks]
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                chosen = order[start : start + self.batch_size]
                yield {n: t[chosen] for n, t in zip(train.names, train.tensors, strict=True)}
            epoch += 1


@torch.no_grad()
def evaluation_loss(subject: Subject, model: nn.Module) -> float:
    """Return the mean loss over all test samples."""
    test = subject.data.test
    batch: Any = dict(zip(test.names, test.tensors, strict=True))
    model.eval()
    return float(subject.definition.train_step(model, batch))


class PacedStep:
    """The step function of an arm: forward pass, then sleep, and a line in the record.

    Args:
        task: What is run.
        rank: Whose step it is.
        subject: What is trained.
    """

    def __init__(self, task: Task, rank: int, subject: Subject) -> None:
        self._definition, self._samples = subject.definition, subject.batch_size
        self._pacer = Pacer(
            task.slow,
            rank,
            base_s=task.base_s,
            rest_s=task.rest_s,
            seed=derive_seed(task.seed, rank, "pace"),
        )
        self.recorder = Recorder(task, rank)

    def begin(self) -> None:
        """Note that a step begins."""
        self._pacer.begin()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the loss of a batch once the step has lasted long enough."""
        loss = self._definition.train_step(model, batch)
        paced = self._pacer.pad()
        self.recorder.step(paced, self._samples)
        return loss
