"""Gradient averages over two ranks, on both CPU exchanges."""

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.gradients import GradientPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.store import MemoryStore


@pytest.fixture(params=["flat", "two_level"])
def ranks(request, thread_ranks):
    """Run ``body(rank, plane_of)`` on two ranks; ``plane_of(model)`` is formed already."""
    memory = MemoryStore()

    def run(body, count=2):
        def rank(k):
            seats = tuple(Seat(uid=f"u{r}", rank=r, host="h") for r in range(count))
            formation = Formation(
                run="r", nonce="n", generation=1, rank=k, seats=seats, topology=request.param
            )
            planes = []

            def plane_of(model):
                planes.append(GradientPlane(model, PlaneConfig()))
                planes[-1].form(formation, ControlStore(memory))
                return planes[-1]

            try:
                return body(k, plane_of)
            finally:
                for plane in planes:
                    plane.close()

        return thread_ranks(count, rank)

    return run


def average(plane, step, samples, **options):
    plane.contribute(step, samples, **options)
    assert plane.wait(timeout_s=30) is Progress.DONE, plane.failure
    return plane.commit()


def test_gradients_weigh_by_samples_and_are_written_in_place(ranks):
    def rank(k, plane_of):
        model = nn.Linear(2, 1)
        plane = plane_of(model)
        model.weight.grad = torch.full((1, 2), 1.0 + k)
        model.bias.grad = torch.full((1,), 10.0 * k)
        places = [p.grad.data_ptr() for p in model.parameters()]
        outcome = average(plane, 1, samples=[3, 1][k], scale=[8.0, 2.0][k])
        assert places == [p.grad.data_ptr() for p in model.parameters()]
        return outcome, model.weight.grad.tolist(), model.bias.grad.item(), plane.last_completed

    for outcome, weight, bias, last in ranks(rank):
        assert (outcome.samples, outcome.bad_ranks, outcome.scale) == (4, 0, 2.0)
        assert outcome.is_usable
        assert weight == [[1.25, 1.25]]
        assert bias == 2.5
        assert last == 1


def test_a_rank_without_a_batch_follows_the_others(ranks):
    def rank(k, plane_of):
        model = nn.Linear(2, 1)
        plane = plane_of(model)
        if k == 0:
            model.weight.grad = torch.tensor([[4.0, 5.0]])
            model.bias.grad = torch.tensor([6.0])
        outcome = average(plane, 1, samples=7 * (1 - k))
        return outcome.samples, model.weight.grad.tolist(), model.bias.grad.tolist()

    assert ranks(rank) == [(7, [[4.0, 5.0]], [6.0])] * 2


def test_a_gradient_that_no_rank_has_stays_none(ranks):
    def rank(k, plane_of):
        model = nn.ModuleDict({name: nn.Linear(1, 1, bias=False) for name in "abc"})
        plane = plane_of(model)
        model["a"].weight.grad = torch.ones(1, 1)
        if k == 1:
            model["b"].weight.grad = torch.full((1, 1), 6.0)
        average(plane, 1, samples=1)
        return [None if p.grad is None else p.grad.item() for p in model.parameters()]

    assert ranks(rank) == [[1.0, 3.0, None]] * 2


@pytest.mark.parametrize("kind", ["nan", "inf", "flag"])
def test_one_bad_rank_spoils_the_step_for_all_and_the_next_is_good(ranks, kind):
    def rank(k, plane_of):
        model = nn.BatchNorm1d(1)
        plane = plane_of(model)
        flag = None
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        if k == 1 and kind == "flag":
            flag = torch.tensor(1.0)
        elif k == 1:
            model.weight.grad.fill_(float(kind))
        model.running_mean.fill_(10.0 + k)
        bad = average(plane, 1, samples=2, is_bad=flag)
        gradients = [p.grad.item() for p in model.parameters()]
        mean = model.running_mean.item()
        for p in model.parameters():
            p.grad.fill_(1.0 + k)
        good = average(plane, 2, samples=2)
        return bad, gradients, mean, good.is_usable, model.weight.grad.item()

    for bad, gradients, mean, is_usable, gradient in ranks(rank):
        assert (bad.bad_ranks, bad.is_usable) == (1, False)
        assert all(g != g for g in gradients)
        assert mean == 10.0
        assert (is_usable, gradient) == (True, 1.5)


def test_buffers_are_averaged_equally_along(ranks):
    def rank(k, plane_of):
        model = nn.BatchNorm1d(1)
        plane = plane_of(model)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        model.running_mean.fill_(float(k))
        average(plane, 1, samples=[9, 1][k])
        return model.running_mean.item(), plane.consensus.tensors()["running_mean"].item()

    assert ranks(rank) == [(0.5, 0.5)] * 2


def test_commit_without_an_average_is_an_error(ranks):
    def rank(k, plane_of):
        plane = plane_of(nn.Linear(1, 1))
        with pytest.raises(CollectiveError, match="without a completed average"):
            plane.commit()

    ranks(rank)


@pytest.mark.parametrize(
    "config",
    [PlaneConfig(wire="bf16"), PlaneConfig(alpha=0.5), PlaneConfig(inner_state="reset")],
    ids=["bf16", "easgd", "inner"],
)
def test_settings_for_parameters_are_refused(config):
    with pytest.raises(ConfigError, match="gradients are averaged as is"):
        GradientPlane(nn.Linear(1, 1), config)


def test_a_rank_that_joins_takes_the_models_values_over(ranks):
    def rank(k, plane_of):
        model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
        with torch.no_grad():
            for value in (*model.parameters(), model[1].running_mean):
                value.fill_(1.0 + k)
            model[1].num_batches_tracked.fill_(5 + k)
        plane = plane_of(model)
        plane.synchronize(1, [0])
        return {name: value.tolist() for name, value in model.state_dict().items()}

    first, second = ranks(rank)
    assert first == second
    assert (first["0.weight"], first["1.running_mean"]) == ([[2.0, 2.0]], [2.0])
    assert first["1.num_batches_tracked"] == 6


def test_a_rank_that_joins_takes_double_precision_over_to_the_bit(ranks):
    def rank(k, plane_of):
        model = nn.Linear(2, 1, dtype=torch.float64)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1 / 3 + k)
        plane_of(model).synchronize(1, [0])
        return [value.tolist() for value in model.parameters()]

    assert ranks(rank) == [[[[1 / 3 + 1] * 2], [1 / 3 + 1]]] * 2
