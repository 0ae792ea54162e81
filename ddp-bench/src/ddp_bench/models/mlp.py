"""A network with one hidden layer on MNIST: 203,530 parameters."""

from __future__ import annotations

import torch
from torch import nn

from ddp_bench.definition import DataFacts, DataSpec, ModelDef, Setup
from ddp_bench.models.classification import accuracy, train_step
from flodl import FlowBuilder


def build(device: torch.device, facts: DataFacts) -> nn.Module:
    """Return the graph: 784-256-10 with ReLU."""
    del facts
    return (
        FlowBuilder(nn.Flatten())
        .through(nn.Linear(784, 256))
        .tag("hidden")
        .through(nn.ReLU())
        .through(nn.Linear(256, 10))
        .tag("logits")
        .label("mlp")
        .build()
        .to(device)
    )


MLP = ModelDef(
    name="mlp",
    description="one hidden layer of 256 on MNIST",
    build=build,
    train_step=train_step,
    eval_step=accuracy,
    metric="accuracy",
    higher_is_better=True,
    optimizer=torch.optim.Adam,
    lr=1e-3,
    defaults=Setup(data=DataSpec(name="mnist"), epochs=5),
    mini=Setup(data=DataSpec(name="mnist"), epochs=6, floor=0.90),
)
