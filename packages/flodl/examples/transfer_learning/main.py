"""Train an encoder, load it into a larger model, freeze it, fine-tune.

Run: python main.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl.graph import FlowBuilder, Graph


def encoder() -> Graph:
    """Return the part that is trained first."""
    flow = FlowBuilder(nn.Linear(4, 16)).through(nn.BatchNorm1d(16), nn.Tanh())
    return flow.through(nn.Linear(16, 8)).tag("code").label("encoder").build()


def autoencoder() -> Graph:
    """Return the model that trains it."""
    return FlowBuilder(encoder()).through(nn.Linear(8, 4)).tag("decoder").build()


def classifier() -> Graph:
    """Return the model that uses it."""
    return FlowBuilder(encoder()).through(nn.ReLU(), nn.Linear(8, 2)).build()


def fit(model: Graph, x: Tensor, y: Tensor, loss_function: nn.Module, steps: int) -> float:
    """Train what requires gradients and return the last loss."""
    optimizer = torch.optim.AdamW(list(model.trainable_parameters()), lr=1e-2)
    model.train()
    for _ in range(steps):
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main(folder: Path, steps: int = 100) -> tuple[Graph, Graph, float]:
    """Return both models and the loss after fine-tuning."""
    torch.manual_seed(0)
    x = torch.randn(128, 4)
    labels = (x[:, 0] * x[:, 1] > 0).long()

    first = autoencoder()
    print(f"reconstruction {fit(first, x, x, nn.MSELoss(), steps):.4f}")
    first.subgraph("encoder").save_checkpoint(folder / "encoder.fdl.gz")

    second = classifier()
    print(second.load_subgraph_checkpoint("encoder", folder / "encoder.fdl.gz"))
    second.freeze("encoder", pin_eval=True)
    print(f"head only {fit(second, x, labels, nn.CrossEntropyLoss(), steps):.4f}")
    second.thaw("encoder")
    loss = fit(second, x, labels, nn.CrossEntropyLoss(), steps)
    print(f"everything {loss:.4f}")
    print(functional.softmax(second.eval()(x[:2]), dim=-1))
    return first, second, loss


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "transfer-out")
    place.mkdir(parents=True, exist_ok=True)
    main(place)
