"""One replica a rank, here a thread: the same loop gives what replicas in one process give."""

import pytest
import torch
from torch import nn

from flodl.core.errors import FormationError, StepContractError
from flodl.distributed.collective.rendezvous import Rendezvous
from flodl.distributed.replica import DdpConfig
from flodl.distributed.replica.spreading import as_rank
from flodl.distributed.replica.surroundings import RankPlace
from flodl.graph import FlowBuilder

CLOSE = {"rel": 1e-5, "abs": 1e-6}
CPU = torch.device("cpu")


@pytest.fixture
def ranks(small, thread_ranks):
    """Run a body with a graph on each rank, and return what each gave."""

    def run(count, body, *, optimizer=small.sgd, make=small.build, loader=True, config=None):
        meeting = Rendezvous.local(count)

        def rank(k):
            graph = make()
            place = RankPlace(rank=k, world_size=count, device=CPU, meeting=meeting)
            graph.bind_stepper(as_rank(graph, place))
            if config is not None:
                graph.configure_el_che(config)
            graph.set_optimizer(optimizer)
            if loader:
                graph.set_data_loader(small.loader(), "x")
            return body(graph)

        return thread_ranks(count, rank)

    return run


def losses_and_weights(loss, epochs=2):
    """Train, and return for each step the loss of this rank's rows and its weight in the whole."""

    def body(graph):
        found, weights = {}, []

        def weighing(output, batch, ctx):
            weights.append((ctx.weight, ctx.rank, ctx.world_size))
            return loss(output, batch)

        graph.set_loss_fn(weighing)
        for epoch in range(epochs):
            for batch in graph.epoch(epoch):
                value = graph.forward_batch(batch)
                value.backward()
                graph.step()
                found[epoch, batch.index] = value.item() * weights[-1][0]
        return found, weights, [p.detach().clone() for p in graph.parameters()], graph.training_step

    return body


def together(results):
    """The losses of all rows, by step."""
    steps = sorted({step for found, *_ in results for step in found})
    return [sum(found.get(step, 0.0) for found, *_ in results) for step in steps]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_ranks_train_like_one_device_and_like_replicas(ranks, fakes, small, count, optimizer):
    factory = getattr(small, optimizer)
    results = ranks(count, losses_and_weights(small.square), optimizer=factory)
    wanted = small.train(fakes(1, factory))
    assert together(results) == pytest.approx(wanted, **CLOSE)
    assert small.train(fakes(count, factory)) == pytest.approx(wanted, **CLOSE)
    first = results[0][2]
    for k, (_, weights, parameters, steps) in enumerate(results):
        assert all(map(torch.equal, parameters, first))
        assert {(rank, world) for _, rank, world in weights} == {(k, count)}
        assert steps == 14, "a rank without rows of the last batch steps with the others"


def test_clipping_is_that_of_replicas(ranks, fakes, small):
    # One epoch: later, shares follow measured speeds, and each device clips its own rows' mean.
    config = DdpConfig(max_anchor=0, max_grad_norm=0.1)
    results = ranks(2, losses_and_weights(small.square, epochs=1), config=config)
    replicas = fakes(2, config=config)
    assert together(results) == pytest.approx(small.train(replicas, epochs=1), **CLOSE)
    plain = small.train(fakes(2), epochs=1)
    assert together(results) != pytest.approx(plain, **CLOSE), "the limit holds"


def test_direct_calls_weigh_by_the_rows_that_each_rank_brings(ranks, small):
    sizes = (5, 3)

    def body(graph):
        rank = graph.flodl_training.stepper._ranks[0]
        for start in range(0, 40, 8):
            first = start + sum(sizes[:rank])
            x, y = small.x[first : first + sizes[rank]], small.y[first : first + sizes[rank]]
            (graph(x) - y).square().mean().backward()
            graph.step()
        return [p.detach().clone() for p in graph.parameters()]

    first, second = ranks(2, body, loader=False)
    alone = small.build()
    optimizer = small.sgd(alone.parameters())
    for x, y in zip(small.x[:40].split(8), small.y[:40].split(8), strict=True):
        optimizer.zero_grad()
        (alone(x) - y).square().mean().backward()
        optimizer.step()
    for ours, theirs, wanted in zip(first, second, alone.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)


def test_ranks_split_by_what_all_of_them_measured(ranks, small):
    def body(graph):
        losses_and_weights(small.square, epochs=3)(graph)
        return graph.chunk_ratios, graph.throughput

    results = ranks(2, body)
    assert results[0] == results[1]
    ratios, throughput = results[0]
    assert all(speed > 0 for speed in throughput)
    assert sum(ratios) == pytest.approx(1.0)
    assert ratios != (0.5, 0.5)


@pytest.mark.parametrize("count", [2, 3])
def test_el_che_deals_whole_batches_to_ranks(ranks, small, count):
    config = DdpConfig(max_anchor=2, speed_hint=(0, 2.0))
    results = ranks(count, losses_and_weights(small.square, epochs=3), config=config)
    for _, weights, parameters, steps in results:
        assert all(map(torch.equal, parameters, results[0][2]))
        assert steps == results[0][3]
        assert weights
    # 2 batches of the slow rank and 4 of the others in the first window
    whole = 2 + 4 * (count - 1)
    shares = [2 / whole] + [4 / whole] * (count - 1)
    if whole <= 6:
        assert [weights[0][0] for _, weights, _, _ in results] == pytest.approx(shares)


def test_an_evaluation_makes_no_step_for_a_rank_without_rows(ranks, small):
    def body(graph):
        before = [p.detach().clone() for p in graph.parameters()]
        graph.eval()
        with torch.no_grad():
            rows = [graph.forward_batch(batch).shape[0] for batch in graph.epoch(0)]
        assert all(map(torch.equal, before, graph.parameters()))
        for batch in graph.epoch(1):  # gradients, but a step after all of them
            graph.forward_batch(batch).mean().backward()
        graph.step()
        return rows, graph.training_step

    results = ranks(3, body)
    assert [steps for _, steps in results] == [1, 1, 1]
    assert [len(rows) for rows, _ in results] == [7, 7, 6]
    assert sum(sum(rows) for rows, _ in results) == 50


def test_graphs_that_differ_are_named(ranks):
    made = iter([nn.Tanh(), nn.ReLU()])

    def make():
        return FlowBuilder(nn.Linear(4, 4)).through(next(made)).build()

    with pytest.raises(FormationError, match="graph of rank 1 has the hash"):
        ranks(2, lambda graph: None, make=make, loader=False)


def test_a_step_without_a_backward_pass_is_an_error_on_its_rank(ranks, small):
    def body(graph):
        with pytest.raises(StepContractError, match="no parameter has a gradient"):
            graph.step()
        graph(small.x).mean().backward()
        graph.step()
        return graph.training_step

    assert ranks(2, body, loader=False) == [1, 1]
