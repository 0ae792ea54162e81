"""A model with a residual connection, trained in a plain loop.

Run: python main.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl.graph import FlowBuilder, Graph


def build() -> Graph:
    """Return the model."""
    return (
        FlowBuilder(nn.Linear(2, 16))
        .through(nn.GELU())
        .through(nn.LayerNorm(16))
        .also(nn.Linear(16, 16))
        .through(nn.Linear(16, 2))
        .build()
    )


def data() -> tuple[Tensor, Tensor]:
    """Return points and what the model is to make of them."""
    x = torch.randn(256, 2, generator=torch.Generator().manual_seed(0))
    return x, torch.stack([x.sum(1).sin(), x.prod(1)], dim=1)


def main(epochs: int = 40) -> list[float]:
    """Train and return the loss of each epoch."""
    torch.manual_seed(0)
    model, (x, y) = build(), data()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for inputs, targets in zip(x.split(64), y.split(64), strict=True):
            loss = functional.mse_loss(model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            model.record_scalar("loss", loss)
        model.flush()
    print(model.trend("loss"))
    return model.trend("loss").values


if __name__ == "__main__":
    main()
