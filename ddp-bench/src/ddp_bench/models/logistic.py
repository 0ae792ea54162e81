"""Softmax regression on MNIST: 7,850 parameters."""

from __future__ import annotations

import torch
from torch import nn

from ddp_bench.definition import DataFacts, DataSpec, ModelDef, Setup
from ddp_bench.models.classification import accuracy, train_step
from flodl import FlowBuilder


def build(device: torch.device, facts: DataFacts) -> nn.Module:
    """Return the graph: one linear layer over the pixels."""
    del facts
    return (
        FlowBuilder(nn.Flatten())
        .through(nn.Linear(784, 10))
        .tag("logits")
        .label("logistic")
        .build()
        .to(device)
    )


LOGISTIC = ModelDef(
    name="logistic",
    description="softmax regression on MNIST",
    build=build,
    train_step=train_step,
    eval_step=accuracy,
    metric="accuracy",
    higher_is_better=True,
    optimizer=torch.optim.Adam,
    lr=1e-3,
    defaults=Setup(data=DataSpec(name="mnist"), epochs=5),
    mini=Setup(data=DataSpec(name="mnist"), epochs=6, floor=0.86),
)
