"""What is done to the graph that the user holds between two steps holds for all replicas."""

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.graph import FlowBuilder
from flodl.nn import StateAdd

CLOSE = {"rel": 1e-5, "abs": 1e-6}


def losses(graph, small, between, steps=4):
    """Return the losses of a loop that does something after each step."""
    found = []
    for k in range(steps):
        loss = (graph(small.x) - small.y).square().mean()
        loss.backward()
        graph.step()
        between(graph, k)
        found.append(loss.item())
    return found


def clip_weights(graph, _):
    for parameter in graph.parameters():
        parameter.data.clamp_(-0.2, 0.2)


def exchange_data(graph, _):
    for parameter in graph.parameters():
        parameter.data = parameter.data * 0.5


def write_one_number(graph, k):
    next(iter(graph.parameters())).data[0, 0] = 0.1 * k


@pytest.mark.parametrize("between", [clip_weights, exchange_data, write_one_number])
@pytest.mark.parametrize("count", [2, 3])
def test_weights_written_behind_the_back_of_autograd_reach_all(fakes, small, between, count):
    wanted = losses(fakes(1, loader=None), small, between)
    assert losses(fakes(count, loader=None), small, between) == pytest.approx(wanted, **CLOSE)


class Tempered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, x):
        return x / self.temperature


def tempered(device="cpu"):
    torch.manual_seed(0)
    return FlowBuilder(nn.Linear(4, 1)).through(Tempered(), key="tempered").build()


def write_buffer(graph, k):
    graph.tempered.temperature.fill_(1.0 + k)


def exchange_buffer(graph, k):
    graph.tempered.temperature = torch.tensor(1.0 + k)


@pytest.mark.parametrize("between", [write_buffer, exchange_buffer])
def test_a_buffer_written_between_steps_reaches_all(fakes, small, between):
    wanted = losses(fakes(1, make=tempered, loader=None), small, between)
    found = losses(fakes(2, make=tempered, loader=None), small, between)
    assert found == pytest.approx(wanted, **CLOSE)


def test_statistics_of_a_call_stay_those_of_its_replica(fakes, small):
    def make(device="cpu"):
        torch.manual_seed(0)
        return FlowBuilder(nn.BatchNorm1d(4)).through(nn.Linear(4, 1)).build()

    graph = fakes(2, make=make, loader=None)
    (replica,) = graph.flodl_training.stepper.replicas
    own = [nn.BatchNorm1d(4) for _ in range(2)]
    for rows in (small.x[:20], small.x[20:40]):
        loss = graph(rows).mean()  # two calls before a step: no exchange between them
        for norm, part in zip(own, rows.split(10), strict=True):
            norm(part)
        loss.backward()
    for one, norm in zip((graph, replica), own, strict=True):
        mean = next(value for name, value in one.named_buffers() if "mean" in name)
        torch.testing.assert_close(mean, norm.running_mean)


def test_a_batch_that_is_given_up_leaves_no_gradient_behind(fakes, small):
    found = {}
    for count in (1, 2, 3):
        graph = fakes(count, loader=None)
        found[count] = []
        for k, x in enumerate(small.x[:40].split(8)):
            broken = x.clone()
            broken[-1] = torch.nan if k == 2 else x[-1]
            loss = graph(broken).square().mean()
            loss.backward()
            if not loss.isfinite():
                graph.zero_grad()
                continue
            graph.step()
            found[count].append(loss.item())
    assert len(found[1]) == 4
    assert found[2] == pytest.approx(found[1], **CLOSE)
    assert found[3] == pytest.approx(found[1], **CLOSE)


def test_gradients_of_rows_that_train_nothing_of_the_first_replica_are_kept(fakes, small):
    class Half(nn.Module):
        """Trains on rows of positive mean only."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x):
            out = self.layer(x)
            return out if x.mean() > 0 else out.detach()

    def make(device="cpu"):
        torch.manual_seed(0)
        return FlowBuilder(Half()).build()

    x = torch.cat([-small.x[:4].abs(), small.x[:4].abs()])
    graph, hand = fakes(2, make=make, loader=None), make()
    for _ in range(2):  # gradients add up over two calls
        graph(x).square().mean().backward()
        torch.cat([hand(x[:4]), hand(x[4:])]).square().mean().backward()
    wanted = [p - 0.02 * p.grad for p in hand.parameters()]
    graph.step()
    for ours, theirs in zip(graph.parameters(), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_cleared_gradients_are_cleared_on_all(fakes, small, set_to_none):
    graph = fakes(2, loader=None)
    before = [p.detach().clone() for p in graph.parameters()]
    (graph(small.x).mean() * torch.nan).backward()
    graph.zero_grad(set_to_none=set_to_none)
    graph(small.x).mean().backward()
    graph.step()
    assert all(p.isfinite().all() for p in graph.parameters())
    assert not all(map(torch.equal, before, graph.parameters()))


def test_state_is_read_and_written_as_on_one_device(fakes, small):
    def make(device="cpu"):
        torch.manual_seed(0)
        flow = FlowBuilder(nn.Linear(4, 4)).through(StateAdd()).using("memory").tag("memory")
        return flow.through(nn.Linear(4, 1)).build()

    for rows in (7, 1):
        graphs = [fakes(count, make=make, loader=None) for count in (1, 3)]
        for graph in graphs:
            graph(small.x[:rows])
        states = [graph.get_state() for graph in graphs]
        assert states[1]["memory"].shape == (rows, 4)
        torch.testing.assert_close(states[1], states[0])
        for graph in graphs:
            graph.reset_state()
            graph.set_state(states[0])
        torch.testing.assert_close(graphs[1](small.x[:rows]), graphs[0](small.x[:rows]))
        torch.testing.assert_close(graphs[1].get_state(), graphs[0].get_state())


def test_a_loader_that_names_nothing_is_refused(fakes, small):
    graph = fakes(2, loader=None)
    plain = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(small.x, small.y))
    with pytest.raises(ConfigError, match="of a DataLoader: its batches have no names"):
        graph.set_data_loader(plain, "x")
