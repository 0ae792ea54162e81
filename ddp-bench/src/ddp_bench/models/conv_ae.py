"""A convolutional autoencoder on MNIST: 9,569 parameters; the target is the input."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ddp_bench.definition import DataFacts, DataSpec, ModelDef, Setup
from flodl import Batch, FlowBuilder


def build(device: torch.device, facts: DataFacts) -> nn.Module:
    """Return the graph: two strided convolutions down to 32x7x7, and two back up."""
    del facts
    return (
        FlowBuilder(nn.Conv2d(1, 16, 3, stride=2, padding=1))
        .through(nn.ReLU())
        .through(nn.Conv2d(16, 32, 3, stride=2, padding=1))
        .tag("code")
        .through(nn.ReLU())
        .through(nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=1))
        .through(nn.ReLU())
        .through(nn.ConvTranspose2d(16, 1, 3, stride=2, padding=1, output_padding=1))
        .through(nn.Sigmoid())
        .tag("image")
        .label("conv_ae")
        .build()
        .to(device)
    )


def reconstruction_error(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean squared difference between images and their reconstruction."""
    image = batch["image"]
    return functional.mse_loss(model(image), image)


CONV_AE = ModelDef(
    name="conv-ae",
    description="convolutional autoencoder on MNIST",
    build=build,
    train_step=reconstruction_error,
    eval_step=reconstruction_error,
    metric="mse",
    higher_is_better=False,
    optimizer=torch.optim.Adam,
    lr=1e-3,
    defaults=Setup(data=DataSpec(name="mnist"), epochs=5),
    mini=Setup(data=DataSpec(name="mnist"), epochs=5, floor=0.008),
)
