"""Several replicas of a graph in this process train like one device with the whole batch."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from flodl.core.errors import (
    StaleIteratorError,
    StepContractError,
)
from flodl.data import DataLoader, TensorDataSet
from flodl.distributed.replica import DdpConfig
from flodl.distributed.replica.balance import floored_shares
from flodl.graph import FlowBuilder, Graph, LossContext
from flodl.nn import StateAdd
from flodl.nn.schedulers import StepDecay

CLOSE = {"rel": 1e-5, "abs": 1e-6}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_losses_and_parameters_are_those_of_one_device(fakes, small, count, optimizer):
    factory = getattr(small, optimizer)
    one, many = fakes(1, factory), fakes(count, factory)
    assert (one.world_size, many.world_size) == (1, count)
    assert small.train(many) == pytest.approx(small.train(one), **CLOSE)
    for ours, theirs in zip(many.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_all_replicas_stay_equal(fakes, small):
    graph = fakes(3, small.adam)
    small.train(graph)
    for replica in graph.flodl_training.stepper.replicas:
        assert all(map(torch.equal, replica.parameters(), graph.parameters()))


def unequal(graph, ratios):
    """Let devices take rows in this ratio, as after a calibration."""
    balance = graph.flodl_training.stepper._balance
    for device, ratio in enumerate(ratios):
        balance.take(device, 1000, 1000 / ratio)
    for _ in range(10):
        balance.step()
    assert balance.sizes(8) != balance.sizes(8)[::-1]


@pytest.mark.parametrize("ratios", [(5.0, 3.0), (1.0, 6.0), (2.0, 1.0, 4.0)])
def test_unequal_shares_give_the_same_losses(fakes, small, ratios):
    one, many = fakes(1), fakes(len(ratios))
    unequal(many, ratios)
    assert small.train(many) == pytest.approx(small.train(one), **CLOSE)


def test_a_direct_call_shares_out_its_rows(fakes, small):
    one, many = fakes(1, loader=None), fakes(3, loader=None)
    losses = {}
    for graph in (one, many):
        losses[graph] = []
        for x, y in zip(small.x.split(7), small.y.split(7), strict=True):
            loss = (graph(x) - y).abs().mean()
            loss.backward()
            graph.step()
            losses[graph].append(loss.item())
    assert losses[many] == pytest.approx(losses[one], **CLOSE)
    assert many.shard_sizes == (1, 0, 0)  # the one row that was left
    many(small.x[:7])
    assert many.shard_sizes == (3, 2, 2)
    assert many(small.x[:0]).shape == (0, 1)


def observed(output, batch, ctx):
    """A loss of output, tags and traces, and of a penalty of the parameters."""
    return (
        (output - batch["y"]).square().mean()
        + ctx.tags["hidden"].square().mean()
        + sum(value.abs().mean() for value in ctx.traces["steps"])
    )


def test_tags_and_traces_of_all_replicas_carry_gradients(fakes):
    losses = {}
    for count in (1, 2, 3):
        graph = fakes(count)
        graph.set_loss_fn(observed)
        losses[count] = []
        for epoch in range(2):
            for batch in graph.epoch(epoch):
                loss = graph.forward_batch(batch)
                loss.backward()
                graph.step()
                losses[count].append(loss.item())
                assert graph.tagged("hidden").shape == (batch.size, 8)
                assert [value.shape[0] for value in graph.traces("steps")] == [batch.size] * 2
                assert not graph.tagged("hidden").requires_grad, "step() ends the batch"
    assert losses[2] == pytest.approx(losses[1], **CLOSE)
    assert losses[3] == pytest.approx(losses[1], **CLOSE)


class Sides(nn.Module):
    """Sends rows through one of two graphs, by their mean."""

    def __init__(self):
        super().__init__()
        self.low = FlowBuilder(nn.Linear(2, 1)).tag("out").label("low").build()
        self.high = FlowBuilder(nn.Linear(2, 1)).tag("out").label("high").build()

    def forward(self, x):
        return self.high(x) if x.mean() > 0 else self.low(x)


def sides(device="cpu"):
    torch.manual_seed(0)
    return FlowBuilder(Sides()).build()


SIGNED = torch.tensor([[1.0, 2.0], [3.0, 4.0], [-1.0, -2.0], [-3.0, -4.0]])
SIGNED_SET = TensorDataSet(x=SIGNED)


def test_tags_of_nested_graphs_hold_the_rows_that_reached_them(fakes):
    graph, seen = fakes(2, make=sides, loader=lambda: DataLoader(SIGNED_SET, batch_size=4)), []
    graph.set_loss_fn(lambda output, batch, ctx: seen.append(ctx.tags) or output.mean())
    for batch in graph.epoch(0):
        graph.forward_batch(batch)
    assert seen[0].keys() == {"low.out", "high.out"}
    graph(SIGNED)
    assert [graph.tagged_at(f"{side}.out").shape for side in ("low", "high")] == [(2, 1), (2, 1)]
    graph(SIGNED[:2])
    assert graph.tagged_at("low.out") is None
    assert graph.tagged_at("high.out").shape == (2, 1)


def test_a_penalty_of_the_parameters_counts_once(fakes, small):
    def loss(graph):
        return lambda output, batch: (
            small.square(output, batch)
            + 0.1 * sum(parameter.square().sum() for parameter in graph.parameters())
        )

    one, many = fakes(1), fakes(3)
    unequal(many, (2.0, 1.0, 4.0))
    assert small.train(many, loss(many)) == pytest.approx(small.train(one, loss(one)), **CLOSE)


def test_gradients_of_several_calls_add_up_to_a_step(fakes, small):
    losses = {}
    for count in (1, 2):
        graph = fakes(count, loader=None)
        losses[count] = []
        for _ in range(4):
            for rows in (small.x[:9], small.x[9:14]):
                loss = graph(rows).square().mean()
                loss.backward()
                losses[count].append(loss.item())
            graph.step()
    assert losses[2] == pytest.approx(losses[1], **CLOSE)


def by_hand(graph, batches, sizes, limit):
    """What clipping the gradient of each device's own mean does, device by device."""
    optimizer = torch.optim.SGD(graph.parameters(), lr=0.02, momentum=0.9)
    for x, y in batches:
        whole = [torch.zeros_like(parameter) for parameter in graph.parameters()]
        for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True):
            graph.zero_grad()
            (graph(xs) - ys).square().mean().backward()
            nn.utils.clip_grad_norm_(graph.parameters(), limit)
            for total, parameter in zip(whole, graph.parameters(), strict=True):
                total.add_(parameter.grad * len(xs) / len(x))
        for total, parameter in zip(whole, graph.parameters(), strict=True):
            parameter.grad = total
        optimizer.step()


def test_gradients_are_clipped_on_each_device(fakes, small):
    graph = fakes(2, loader=None, config=DdpConfig(max_anchor=0, max_grad_norm=0.1))
    unequal(graph, (5.0, 3.0))
    hand = small.build()
    batches = list(zip(small.x[:40].split(8), small.y[:40].split(8), strict=True))
    for x, y in batches:
        (graph(x) - y).square().mean().backward()
        graph.step()
    assert graph.shard_sizes == (5, 3)
    by_hand(hand, batches, [5, 3], 0.1)
    for ours, theirs in zip(graph.parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_clipping_equals_one_device_where_devices_have_like_rows(fakes, small):
    losses = {}
    x, y = small.x[:4].repeat(2, 1), small.y[:4].repeat(2, 1)
    for count in (1, 2):
        graph = fakes(
            count, small.adam, loader=None, config=DdpConfig(max_anchor=0, max_grad_norm=0.05)
        )
        losses[count] = []
        for _ in range(6):
            loss = (graph(x) - y).square().mean()
            loss.backward()
            graph.step()
            losses[count].append(loss.item())
    assert losses[2] == pytest.approx(losses[1], **CLOSE)


def test_rates_follow_the_schedule_on_every_replica(fakes, small):
    losses = {}
    for count in (1, 3):
        graph = fakes(count)
        graph.set_scheduler(StepDecay(0.2, 3, 0.5))
        graph.set_lr_scale(0.5)
        losses[count] = small.train(graph)
        assert graph.training_step == 14
        graph.set_lr(0.01)
        losses[count] += small.train(graph)
    assert losses[3] == pytest.approx(losses[1], **CLOSE)


def test_rates_written_into_the_first_optimizer_hold_on_every_replica(fakes, small):
    losses = {}
    for count in (1, 3):
        made = []
        graph = fakes(count, lambda params, made=made: made.append(small.sgd(params)) or made[-1])
        losses[count] = small.train(graph)
        made[0].param_groups[0]["lr"] *= 0.25
        losses[count] += small.train(graph)
    assert losses[3] == pytest.approx(losses[1], **CLOSE)


def test_a_parameter_that_one_device_uses_alone_is_trained(fakes):
    graph, hand, x = fakes(2, make=sides, loader=None), sides(), SIGNED
    optimizer = torch.optim.SGD(hand.parameters(), lr=0.02, momentum=0.9)
    for _ in range(3):
        graph(x).square().mean().backward()
        graph.step()
        optimizer.zero_grad()
        torch.cat([hand(x[:2]), hand(x[2:])]).square().mean().backward()
        optimizer.step()
    for ours, theirs in zip(graph.parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_replicas_follow_modes_frozen_parameters_and_written_values(fakes, small):
    def make(device="cpu"):
        torch.manual_seed(0)
        flow = FlowBuilder(nn.Linear(4, 4)).through(nn.BatchNorm1d(4)).through(nn.Linear(4, 1))
        return flow.build()

    graph = fakes(2, make=make, loader=None)
    (replica,) = graph.flodl_training.stepper.replicas
    first = next(iter(graph.parameters()))
    graph.eval()
    first.requires_grad_(False)
    values = {name: torch.randn_like(v) for name, v in graph.named_parameters()}
    graph.load_state_dict(values, strict=False)
    with torch.no_grad():
        whole = graph(small.x)
        alone = copy.deepcopy(graph)(small.x)
    torch.testing.assert_close(whole, alone)
    assert not any(module.training for module in replica.modules())
    assert not next(iter(replica.parameters())).requires_grad
    graph.train()
    graph(small.x).mean().backward()
    assert first.grad is None
    graph.step()
    name = next(iter(values))
    assert torch.equal(replica.state_dict()[name], values[name])


def test_buffers_are_those_of_the_first_device(fakes, small):
    def make(device="cpu"):
        torch.manual_seed(0)
        return FlowBuilder(nn.BatchNorm1d(4)).through(nn.Linear(4, 1)).build()

    graph = fakes(2, make=make, loader=None)
    graph(small.x).mean().backward()
    (replica,) = graph.flodl_training.stepper.replicas
    mine, theirs = dict(graph.named_buffers()), dict(replica.named_buffers())
    assert any(not torch.equal(mine[name], theirs[name]) for name in mine)
    graph.step()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_state_is_kept_by_each_device_and_forgotten_by_all(fakes, small):
    def make(device="cpu"):
        torch.manual_seed(0)
        flow = FlowBuilder(nn.Linear(4, 4)).through(StateAdd()).using("memory").tag("memory")
        return flow.through(nn.Linear(4, 1)).build()

    one, many = fakes(1, make=make, loader=None), fakes(2, make=make, loader=None)
    for graph in (one, many):
        graph(small.x[:8])
    torch.testing.assert_close(many(small.x[:8]), one(small.x[:8]))
    assert many.chunk_ratios == (0.5, 0.5)
    with many.fresh_state():
        many(small.x[:6])
    torch.testing.assert_close(many(small.x[:8]), one(small.x[:8]))
    many.reset_state()
    one.reset_state()
    torch.testing.assert_close(many(small.x[:8]), one(small.x[:8]))
    for _ in range(12):
        many(small.x[:8]).mean().backward()
        many.step()
    assert many.shard_sizes == (4, 4)


def test_the_loss_sees_where_rows_were(fakes, small):
    graph, seen = fakes(3), []
    graph.set_loss_fn(lambda output, batch, ctx: seen.append(ctx) or output.mean())
    batch = next(iter(graph.epoch(0)))
    graph.forward_batch(batch)
    (context,) = seen
    assert isinstance(context, LossContext)
    assert context.shard_sizes == (3, 3, 2)
    assert context.device_indices == (0, 1, 2)
    assert (context.rank, context.world_size, context.weight) == (0, 3, 1.0)
    assert context.tags["hidden"].shape[0] == 8


def test_a_batch_reads_like_one_of_a_single_device(fakes, small):
    one, many = fakes(1), fakes(3)
    for plain, shared in zip(one.epoch(0), many.epoch(0), strict=True):
        assert shared.names == plain.names
        assert (shared.size, len(shared), shared.epoch, shared.index) == (
            plain.size,
            len(plain),
            plain.epoch,
            plain.index,
        )
        assert all(map(torch.equal, shared, plain))
        x, y = shared
        assert torch.equal(x, shared["x"])
        assert shared[-1] is y
        assert all(map(torch.equal, shared.clone(), plain))
        with pytest.raises(IndexError):
            shared[2]


def test_any_loader_that_names_its_batches_will_do(fakes, small):
    class Plain:
        names = ("x", "y")

        def epoch(self, number):
            for start in range(0, 50, 8):
                yield {"x": small.x[start : start + 8], "y": small.y[start : start + 8]}

    one, many = fakes(1, loader=Plain), fakes(3, loader=Plain)
    assert small.train(many) == pytest.approx(small.train(one), **CLOSE)
    with pytest.raises(TypeError, match="does not know how many"):
        len(many.epoch(0))


@pytest.mark.parametrize("options", [{"prefetch": 2}, {"prefetch": 3, "workers": 2}])
def test_rows_are_loaded_ahead_by_a_loader_for_each_device(fakes, small, options):
    one = fakes(1)
    many = fakes(2, loader=lambda: small.loader(streaming=True, **options))
    assert small.train(many) == pytest.approx(small.train(one), **CLOSE)
    for batch in many.epoch(2):
        assert batch.size == 8
        break
    first, second = many.flodl_training.stepper._feeding.loaders
    assert first is not second
    assert (second.batch_size, second.names) == (first.batch_size, first.names)


def test_a_penalty_counts_where_its_device_has_no_rows(fakes, small):
    graph = fakes(2, loader=None)
    before = [p.detach().clone() for p in graph.parameters()]
    sum(parameter.square().sum() for parameter in graph.parameters()).backward()
    graph.step()
    for old, new in zip(before, graph.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old - 0.02 * 2 * old)


def test_an_epoch_may_be_left_and_another_begun(fakes, small):
    graph = fakes(2)
    kept = graph.epoch(0)
    first = next(kept)["x"]
    assert len(kept) == 7
    again = next(iter(graph.epoch(0)))["x"]
    assert torch.equal(first, again)
    with pytest.raises(StaleIteratorError, match="epoch 0"):
        next(kept)
    assert len(small.train(graph, epochs=1)) == 7


def test_observed_tags_are_those_of_all_rows(fakes, small):
    sums = {}
    for count in (1, 2):
        graph = fakes(count, loader=None)
        graph.observe("hidden", reduce="sum")
        graph(small.x)
        sums[count] = graph.flodl_sums.take()
    assert sums[2]["hidden"][0] == pytest.approx(sums[1]["hidden"][0], rel=1e-5)
    assert sums[2]["hidden"][1] == 1
    graph.set_retained("none")
    with pytest.raises(StepContractError, match="not retained"):
        graph(small.x)


def test_a_copy_trains_by_itself(fakes, small):
    graph = fakes(2, loader=None)
    other = copy.deepcopy(graph)
    assert other.world_size == 1
    torch.testing.assert_close(other(small.x), graph(small.x))
    assert isinstance(other, Graph)


def test_a_pickled_graph_and_a_loaded_checkpoint_are_whole(fakes, small, tmp_path):
    graph = fakes(2, loader=None)
    other = pickle.loads(pickle.dumps(graph))
    torch.testing.assert_close(other(small.x), graph(small.x))
    before = graph(small.x).detach()
    graph.save_checkpoint(tmp_path / "g.fdl")
    graph(small.x).square().mean().backward()
    graph.step()
    assert not torch.allclose(before, graph(small.x))
    graph.load_checkpoint(tmp_path / "g.fdl")
    torch.testing.assert_close(graph(small.x), before, check_stride=False)


def test_a_graph_that_is_gone_takes_its_replicas_along(fakes, small):
    graph = fakes(2)
    small.train(graph, epochs=1)
    gone = [weakref.ref(graph), weakref.ref(graph.flodl_training.stepper.replicas[0])]
    del graph
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_the_caller_learns_which_replica_failed(fakes, small):
    class Picky(nn.Module):
        def forward(self, x):
            if x[0, 0] > 100:
                raise ValueError("too large")
            return x * 1

    def make(device="cpu"):
        torch.manual_seed(0)
        return FlowBuilder(Picky()).through(nn.Linear(4, 1)).build()

    graph = fakes(2, make=make, loader=None)
    x = small.x[:8].clone()
    x[4] = 1000
    with pytest.raises(ValueError, match="too large") as caught:
        graph(x)
    assert "raised by replica 1 on cpu" in caught.value.__notes__
    graph(small.x[:8]).mean().backward()
    graph.step()


def test_a_seed_gives_the_same_random_numbers_in_each_run(fakes, small):
    def make(device="cpu"):
        torch.manual_seed(0)
        flow = FlowBuilder(nn.Linear(4, 64)).through(nn.Dropout(0.5)).through(nn.Linear(64, 1))
        return flow.build()

    def losses():
        graph = fakes(3, make=make)
        torch.manual_seed(1)
        return small.train(graph, epochs=1)  # later, shares follow measured times

    first = losses()
    assert [losses() for _ in range(3)] == [first] * 3


def test_the_split_follows_the_speed_of_devices(fakes, small):
    graph = fakes(2, loader=None)
    for _ in range(10):
        assert graph.chunk_ratios == (0.5, 0.5)
        graph(small.x).mean().backward()
        graph.step()
    assert graph.chunk_ratios == pytest.approx(floored_shares(graph.throughput))
    assert sum(graph.chunk_ratios) == pytest.approx(1.0)
    assert min(graph.chunk_ratios) >= 0.05
