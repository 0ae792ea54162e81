"""A classifier with a tagged residual block.

Run: python main.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl.graph import FlowBuilder, Graph


def build() -> Graph:
    """Return the classifier."""
    return (
        FlowBuilder(nn.Linear(2, 32))
        .through(nn.ReLU())
        .also(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)))
        .tag("residual")
        .through(nn.Linear(32, 2))
        .tag("logits")
        .build()
    )


def rings(count: int = 400) -> tuple[Tensor, Tensor]:
    """Return points on two rings, and which ring each lies on."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    angle = torch.rand(count, generator=generator) * 2 * torch.pi
    radius = 1.0 + labels + 0.15 * torch.randn(count, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), labels


def main(epochs: int = 60) -> float:
    """Train and return the share of points on the right ring."""
    torch.manual_seed(0)
    model, (x, y) = build(), rings()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.collect_with("residual", reduce="norm")
        model.record_scalar("loss", loss)
        model.flush()
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {accuracy:.3f}; norm of the residual {model.trend('residual')}")
    return accuracy


if __name__ == "__main__":
    main()
