import copy

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError, GraphInputError, StepContractError
from flodl.data import DataLoader, TensorDataSet
from flodl.graph import FlowBuilder, LossContext
from flodl.nn import StateAdd
from flodl.nn.schedulers import StepDecay

X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))


def model():
    torch.manual_seed(0)
    inner = FlowBuilder(nn.Linear(2, 2)).tag("hidden").label("inner").build()
    flow = FlowBuilder(inner).tag("first").input("extra").through(StateAdd()).using("extra")
    return flow.loop_body(nn.Tanh()).for_n(2, trace=True).tag("steps").build()


def loader(**tensors):
    return DataLoader(TensorDataSet(**tensors), batch_size=4, shuffle=False, device="cpu")


def sgd(params):
    return torch.optim.SGD(params, lr=0.5)


def test_loop_trains_like_one_written_by_hand():
    graph = model()
    hand = copy.deepcopy(graph)
    optimizer = sgd(hand.parameters())
    graph.set_optimizer(sgd)
    graph.set_data_loader(loader(x=X, extra=X, y=X), "x")
    assert graph.target_names == ("y",)
    for epoch in range(2):
        batches = graph.epoch(epoch)
        assert len(batches) == 2
        for batch in batches:
            (graph.forward_batch(batch) - batch["y"]).square().mean().backward()
            graph.step()
        for x in X.split(4):
            optimizer.zero_grad()
            (hand(x, x) - x).square().mean().backward()
            optimizer.step()
    assert graph.training_step == 4
    assert graph.step_count == 4
    assert all(map(torch.equal, graph.parameters(), hand.parameters()))


def rates(graph, steps=3):
    found = []
    optimizers = []

    def factory(params):
        optimizers.append(sgd(params))
        return optimizers[0]

    graph.set_optimizer(factory)
    for _ in range(steps):
        graph(X, X).sum().backward()
        graph.step()
        found.append(optimizers[0].param_groups[0]["lr"])
    return found


def test_learning_rates_follow_scheduler_scale_and_setting():
    assert rates(model(), 1) == [0.5]
    graph = model()
    graph.set_lr_scale(0.5)
    assert rates(graph, 1) == [0.25]
    graph = model()
    graph.set_scheduler(StepDecay(1.0, 2, 0.1))
    graph.set_lr_scale(2.0)
    assert rates(graph) == pytest.approx([2.0, 2.0, 0.2])
    graph.set_lr(0.3)
    assert rates(graph, 1) == [0.6]


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)])
def test_rates_that_somebody_else_writes_hold(rate):
    graph, optimizers = model(), []

    def factory(params):
        optimizers.append(torch.optim.Adam(params, lr=rate))
        return optimizers[0]

    graph.set_optimizer(factory)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.5)
    extra = nn.Parameter(torch.ones(2))
    graph.set_lr_scale(2.0)
    found = []
    for step in range(3):
        if step == 1:
            optimizers[0].add_param_group({"params": [extra], "lr": 0.125})
        (graph(X, X).sum() + extra.sum()).backward()
        graph.step()
        found.append([float(group["lr"]) for group in optimizers[0].param_groups])
        if step == 0:
            schedule.step()
    assert found == [[1.0], [0.5, 0.25], [0.5, 0.25]]


def test_rate_that_is_a_tensor_keeps_its_place():
    graph, rate = model(), torch.tensor(0.5)
    graph.set_optimizer(lambda params: torch.optim.Adam(params, lr=rate))
    graph.set_lr(0.25)
    graph(X, X).sum().backward()
    graph.step()
    assert rate == 0.25


def test_loss_function_sees_output_batch_and_what_was_tagged():
    graph, seen = model(), []
    graph.set_data_loader(loader(x=X, extra=X), "x")

    def loss(output, batch, ctx):
        seen.append(ctx)
        return output.sum() + ctx.tags["inner.hidden"].sum()

    graph.set_loss_fn(loss)
    batch = next(iter(graph.epoch(0)))
    graph.forward_batch(batch).backward()
    (ctx,) = seen
    assert isinstance(ctx, LossContext)
    assert list(ctx.tags) == ["first", "extra", "steps", "inner.hidden"]
    assert len(ctx.traces["steps"]) == 2
    assert (ctx.rank, ctx.world_size, ctx.weight) == (0, 1, 1.0)
    graph.set_loss_fn(lambda output, batch: output.mean())
    assert graph.forward_batch(batch).dim() == 0
    graph.set_loss_fn(None)
    assert graph.forward_batch(batch).shape == (4, 2)


def test_what_is_missing_is_said():
    graph = model()
    with pytest.raises(StepContractError, match="no optimizer\nhint: call set_optimizer"):
        graph.step()
    graph.set_optimizer(sgd)
    with pytest.raises(StepContractError, match="no parameter has a gradient"):
        graph.step()
    with pytest.raises(StepContractError, match=r"epoch\(0\): there is no data"):
        graph.epoch(0)
    with pytest.raises(StepContractError, match="which field is the input"):
        graph.forward_batch({"x": X})
    with pytest.raises(GraphInputError, match="nothing is given to 'extra'; the batches have x, y"):
        graph.set_data_loader(loader(x=X, y=X), "x")
    with pytest.raises(GraphInputError, match="absent='other': no such input; after 'input' there"):
        graph.set_data_loader(loader(x=X, y=X), "x", absent=["other"])
    with pytest.raises(ConfigError, match="'image'.: no such field; there are x, extra"):
        graph.set_data_loader(loader(x=X, extra=X), "image")


class Optional(nn.Module):
    def forward(self, x, refs):
        return x if refs["extra"] is None else x + refs["extra"]


@pytest.mark.parametrize("has_field", [False, True])
def test_an_input_may_be_absent_from_every_batch(has_field):
    flow = FlowBuilder(nn.Identity()).input("extra").through(Optional()).using("extra")
    graph = flow.build()
    fields = {"x": X, "extra": X} if has_field else {"x": X}
    graph.set_data_loader(loader(**fields), "x", absent=["extra"])
    batch = next(iter(graph.epoch(0)))
    assert torch.equal(graph.forward_batch(batch), batch["x"])
    assert graph.target_names == (("extra",) if has_field else ())


def test_without_a_binding_there_is_one_device():
    graph = model()
    assert (graph.world_size, graph.is_distributed, graph.devices) == (1, False, ())
    assert (graph.throughput, graph.chunk_ratios, graph.shard_sizes) == ((), (), ())


def test_another_stepper_may_be_bound_first():
    class Two:
        world_size = 2

    graph = model()
    graph.bind_stepper(Two())
    assert graph.is_distributed
    with pytest.raises(StepContractError, match="set up already"):
        graph.bind_stepper(Two())
    assert not copy.deepcopy(graph).is_distributed


def test_optimizer_itself_is_not_the_function_that_makes_one():
    graph = FlowBuilder(nn.Linear(2, 2)).build()
    optimizer = torch.optim.SGD(graph.parameters(), lr=0.1)
    with pytest.raises(StepContractError, match=r"set_optimizer\(SGD\): it takes a function"):
        graph.set_optimizer(optimizer)
