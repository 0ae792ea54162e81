"""Each replica's optimizer steps its own parameters, with the state that any of them loaded."""

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.distributed.replica.optimizers import load_together


@pytest.fixture
def kept(small):
    """A factory that keeps what it made, as a user does who saves the state."""
    made = []

    def adam(parameters):
        made.append(small.adam(parameters))
        return made[-1]

    adam.made = made
    return adam


@pytest.mark.parametrize("which", ["each", "first", "last"])
@pytest.mark.parametrize("count", [2, 3])
def test_a_loaded_state_goes_to_all_replicas(fakes, small, kept, which, count):
    one = fakes(1, kept, loader=None)
    wanted = [loss_of(one, small) for _ in range(5)]
    kept.made.clear()
    graph = fakes(count, kept, loader=None)
    losses = [loss_of(graph, small) for _ in range(2)]
    weights, state = graph.state_dict(), kept.made[0].state_dict()

    kept.made.clear()
    resumed = fakes(count, kept, loader=None)
    resumed.load_state_dict(weights)
    chosen = {"each": kept.made, "first": kept.made[:1], "last": kept.made[-1:]}[which]
    for optimizer in chosen:
        optimizer.load_state_dict(state)
    losses += [loss_of(resumed, small) for _ in range(3)]
    assert losses == pytest.approx(wanted, rel=1e-5)
    for replica in resumed.flodl_training.stepper.replicas:
        assert all(map(torch.equal, replica.parameters(), resumed.parameters()))


def loss_of(graph, small):
    loss = (graph(small.x) - small.y).square().mean()
    loss.backward()
    graph.step()
    return loss.item()


def test_no_state_is_shared():
    layers = [nn.Linear(2, 1) for _ in range(3)]
    optimizers = [torch.optim.Adam(layer.parameters()) for layer in layers]
    for layer in layers:
        layer(torch.ones(1, 2)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    load_together(optimizers)
    state = optimizers[0].state_dict()
    for optimizer in optimizers:
        optimizer.load_state_dict(state)
    places = [
        value.data_ptr()
        for optimizer in optimizers
        for entry in optimizer.state.values()
        for value in entry.values()
    ]
    assert len(set(places)) == len(places) == 18


def test_an_optimizer_of_other_parameters_is_refused(fakes, small):
    graph = fakes(2, lambda parameters: torch.optim.SGD(parameters, lr=0.1), loader=None)
    with pytest.raises(ConfigError, match="optimizer of replica 1 on cpu, 6 are not its own\nhint"):
        graph.set_optimizer(lambda _: torch.optim.SGD(graph.parameters(), lr=0.1))
    scale = nn.Parameter(torch.ones(1))
    with pytest.raises(ConfigError, match="of 7 parameters .* replica 0 on cpu, 1 are not its own"):
        graph.set_optimizer(lambda parameters: torch.optim.SGD([*parameters, scale], lr=0.1))
    with pytest.raises(ConfigError, match="gave a list for replica 0 on cpu: expected"):
        graph.set_optimizer(list)
    graph.set_optimizer(lambda parameters: torch.optim.SGD(parameters[:2], lr=0.1))
    loss_of(graph, small)
