"""A small model that trains on one device or on fakes of several, and what it gives."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flodl.data import DataLoader, TensorDataSet
from flodl.graph import FlowBuilder

X = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True) * torch.linspace(0.1, 1.0, 50)[:, None]


def build(device="cpu", width=8):
    """Layers with a tag before a loop that is traced."""
    generator = torch.Generator().manual_seed(0)
    graph = (
        FlowBuilder(nn.Linear(4, width))
        .tag("hidden")
        .loop_body(nn.Sequential(nn.Linear(width, width), nn.Tanh()))
        .for_n(2, trace=True)
        .tag("steps")
        .through(nn.Linear(width, 1))
        .build()
    )
    with torch.no_grad():
        for parameter in graph.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return graph.to(device)


def loader_of(**options):
    """Fifty samples in batches of eight, the last of two."""
    given = {"batch_size": 8, "drop_last": False, "seed": 3, **options}
    return DataLoader(TensorDataSet(x=X, y=Y), **given)


def sgd(params):
    return torch.optim.SGD(params, lr=0.02, momentum=0.9)


def adam(params):
    return torch.optim.Adam(params, lr=0.01)


def square(output, batch):
    return (output - batch["y"]).square().mean()


def train(graph, loss=square, epochs=2):
    """Return the losses of a loop."""
    losses = []
    for epoch in range(epochs):
        for batch in graph.epoch(epoch):
            value = loss(graph.forward_batch(batch), batch)
            value.backward()
            graph.step()
            losses.append(value.item())
    return losses


@pytest.fixture
def small():
    """The functions above."""
    return SimpleNamespace(
        build=build, loader=loader_of, sgd=sgd, adam=adam, square=square, train=train, x=X, y=Y
    )


@pytest.fixture
def fakes(monkeypatch):
    """Return a graph on so many devices, ready for its loop."""

    def ready(count, optimizer=sgd, make=build, loader=loader_of, config=None):
        monkeypatch.setenv("FLODL_FAKE_DEVICES", str(count))
        graph = make()
        graph.distribute(make)
        if config is not None:
            graph.configure_el_che(config)
        graph.set_optimizer(optimizer)
        if loader is not None:
            graph.set_data_loader(loader(), "x")
        return graph

    return ready
