"""Collect, flush, ask: the model's own metrics decide about learning rate and stopping.

Run: python main.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from flodl.graph import FlowBuilder, Graph

MOST_EPOCHS = 200


def build() -> Graph:
    """Return a model with a tag to watch."""
    flow = FlowBuilder(nn.Linear(1, 16)).through(nn.Tanh()).tag("hidden")
    return flow.through(nn.Linear(16, 1)).build()


def main() -> tuple[int, list[float]]:
    """Train until the loss has converged; return the epochs and the learning rates."""
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    x = torch.linspace(-2, 2, 64).unsqueeze(1)
    y = x.sin()
    rates = []
    for _ in range(MOST_EPOCHS):
        for inputs, targets in zip(x.split(16), y.split(16), strict=True):
            loss = functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            model.collect_with("hidden", reduce="norm")  # from a tag
            model.record_scalar("loss", loss)  # from outside
        model.flush()
        group = optimizer.param_groups[0]
        rates.append(group["lr"])
        loss_trend = model.trend("loss")
        if loss_trend.converged(8, 1e-9):
            break
        if loss_trend.stalled(5, 1e-3):
            group["lr"] *= 0.9
    print(f"{len(rates)} epochs: {model.latest_metrics()}")
    print(model.trend("loss").sparkline())
    return len(rates), rates


if __name__ == "__main__":
    main()
