"""LeNet-5 with batch norm and ReLU on MNIST: 44,470 parameters.

After LeCun et al. 1998, Proc. IEEE 86(11):2278-2324; batch norm, ReLU and max pooling are the
modern variant.
"""

from __future__ import annotations

import torch
from torch import nn

from ddp_bench.definition import DataFacts, DataSpec, ModelDef, Setup
from ddp_bench.models.classification import accuracy, train_step
from flodl import FlowBuilder


def build(device: torch.device, facts: DataFacts) -> nn.Module:
    """Return the graph: two convolution stages, then 256-120-84-10."""
    del facts
    return (
        FlowBuilder(nn.Conv2d(1, 6, kernel_size=5))
        .through(nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        .tag("stage1")
        .through(nn.Conv2d(6, 16, kernel_size=5))
        .through(nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        .tag("stage2")
        .through(nn.Flatten())
        .through(nn.Linear(256, 120), nn.ReLU())
        .through(nn.Linear(120, 84), nn.ReLU())
        .through(nn.Linear(84, 10))
        .tag("logits")
        .label("lenet")
        .build()
        .to(device)
    )


LENET = ModelDef(
    name="lenet",
    description="LeNet-5 with batch norm on MNIST",
    build=build,
    train_step=train_step,
    eval_step=accuracy,
    metric="accuracy",
    higher_is_better=True,
    optimizer=torch.optim.Adam,
    lr=1e-3,
    defaults=Setup(data=DataSpec(name="mnist"), epochs=5),
    mini=Setup(data=DataSpec(name="mnist"), epochs=3, floor=0.94),
)
