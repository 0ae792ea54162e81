"""The bypass tier in all its forms: replicas in one process, in threads, in processes."""

import threading

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError, FormationError
from flodl.distributed.collective.errors import (
    CollectiveError,
    GradientMismatchError,
    PayloadMismatchError,
)
from flodl.distributed.collective.rendezvous import Rendezvous
from flodl.distributed.ddp import Ddp


def model_of(rank):
    generator = torch.Generator().manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)).double()
    model[2].to(torch.bfloat16)
    model[1].register_buffer("mask", torch.tensor([rank == 0, True, False]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        model[1].num_batches_tracked.fill_(rank)
    return model


@pytest.fixture(params=["one process", "threads"])
def ranks(request, thread_ranks):
    """Call ``body(models, ddp)`` on each owner of replicas, and return all models by rank."""

    def run(count, body, make=model_of):
        models = [make(rank) for rank in range(count)]
        if request.param == "one process":
            with Ddp.wrap(models, ["cpu"] * count) as ddp:
                body(models, ddp)
            return models
        meeting = Rendezvous.local(count)

        def rank(k):
            with Ddp.wrap(models[k], "cpu", k, meeting) as ddp:
                assert (ddp.rank, ddp.world_size, ddp.devices) == (k, count, (torch.device("cpu"),))
                body([models[k]], ddp)

        thread_ranks(count, rank)
        return models

    return run


def rank_of(model):
    """The rank that `model_of` made it for, which the tests keep in a buffer of their own."""
    return int(model[1].num_batches_tracked)


def test_parameters_and_buffers_become_those_of_rank_0_bit_for_bit(ranks):
    wanted = model_of(0).state_dict()
    places = []

    def body(models, ddp):
        places.extend((p, p.data_ptr()) for m in models for p in m.parameters())
        ddp.sync_params()

    for model in ranks(3, body):
        assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
    assert all(p.data_ptr() == place for p, place in places)


def test_buffers_alone_are_synchronized(ranks):
    models = ranks(2, lambda models, ddp: ddp.sync_buffers())
    assert [rank_of(model) for model in models] == [0, 0]
    assert models[1][1].mask.tolist() == [True, True, False]
    assert not torch.equal(models[0][0].weight, models[1][0].weight)


def with_gradients(model):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 2.0 * rank_of(model) + 1)
    return model


def test_gradients_become_their_mean_in_place(ranks):
    def body(models, ddp):
        places = [p.grad.data_ptr() for m in models for p in m.parameters()]
        ddp.all_reduce_gradients()
        assert places == [p.grad.data_ptr() for m in models for p in m.parameters()]

    for model in ranks(3, body, lambda rank: with_gradients(model_of(rank))):
        for parameter in model.parameters():
            assert parameter.grad.dtype is parameter.dtype
            assert torch.equal(parameter.grad, torch.full_like(parameter, 3.0))


def test_counts_weigh_the_gradients(ranks):
    body = lambda models, ddp: ddp.weighted_all_reduce_gradients([6, 0, 2])  # noqa: E731
    for model in ranks(3, body, lambda rank: with_gradients(model_of(rank))):
        assert all(torch.equal(p.grad, torch.full_like(p, 2.0)) for p in model.parameters())


def test_weighted_gradients_train_like_one_process(ranks):
    sizes = (5, 3)
    data = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))

    def make(rank):
        model = nn.Linear(4, 1)
        nn.init.constant_(model.weight, 0.1)
        nn.init.constant_(model.bias, 0.0)
        model.rank = rank
        return model

    def step(model, batch):
        model(batch).square().mean().backward()

    def body(models, ddp):
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
        for _ in range(10):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                step(model, data.split(sizes)[model.rank])
            ddp.weighted_all_reduce_gradients(sizes)
            for optimizer in optimizers:
                optimizer.step()

    alone = make(0)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        step(alone, data)
        optimizer.step()
    for model in ranks(2, body, make):
        torch.testing.assert_close(model.weight, alone.weight, rtol=0, atol=1e-6)


def test_parameters_without_any_gradient_are_skipped(ranks):
    def make(rank):
        model = with_gradients(model_of(rank))
        model[0].weight.grad = None
        return model

    for model in ranks(2, lambda models, ddp: ddp.all_reduce_gradients(), make):
        assert model[0].weight.grad is None
        assert model[0].bias.grad.tolist() == [2.0, 2.0]


def test_a_gradient_that_some_ranks_lack_is_named_and_nothing_changed(ranks):
    def make(rank):
        model = with_gradients(model_of(rank))
        if rank == 1:
            model[2].bias.grad = None
        return model

    def body(models, ddp):
        with pytest.raises(
            GradientMismatchError, match=r"'2\.bias' has no gradient on ranks \[1\]"
        ):
            ddp.all_reduce_gradients()

    models = ranks(3, body, make)
    assert [m[0].bias.grad[0].item() for m in models] == [1.0, 3.0, 5.0]


@pytest.mark.parametrize("counts", [[1], [1, 2, 3], [0, 0], [2, -1]], ids=str)
def test_counts_that_weigh_nothing_are_refused(ranks, counts):
    def body(models, ddp):
        with pytest.raises(ValueError, match="must be 2 numbers"):
            ddp.weighted_all_reduce_gradients(counts)

    ranks(2, body, lambda rank: with_gradients(model_of(rank)))


def test_a_sparse_gradient_is_named_and_nothing_changed(ranks):
    def make(rank):
        model = nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1))
        model(torch.tensor([rank, 3])).sum().backward()
        return model

    def body(models, ddp):
        with pytest.raises(ConfigError, match=r"gradient of 0\.weight is sparse"):
            ddp.all_reduce_gradients()

    first, second = ranks(2, body, make)
    assert not torch.equal(first[1].weight.grad, second[1].weight.grad)


@pytest.mark.parametrize("form", [torch.channels_last, torch.contiguous_format])
def test_memory_formats_and_tied_and_frozen_parameters_are_kept(ranks, form):
    def make(rank):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1))
        model = model.to(memory_format=form)
        model[2].weight = model[1].weight
        model[2].bias.requires_grad_(False)
        x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(1))
        model(x[2 * rank : 2 * rank + 2].to(memory_format=form)).square().mean().backward()
        return model

    def body(models, ddp):
        ddp.sync_params()
        ddp.all_reduce_gradients()

    halves = [make(rank) for rank in range(2)]
    for model in ranks(2, body, make):
        assert model[1].weight.grad is model[2].weight.grad
        assert model[2].bias.grad is None
        assert model[0].weight.is_contiguous(memory_format=form)
        for parameter, one, other in zip(
            model.parameters(), *(half.parameters() for half in halves), strict=True
        ):
            if parameter.requires_grad:
                torch.testing.assert_close(parameter.grad, (one.grad + other.grad) / 2)


def test_replicas_that_differ_are_told_on_every_rank(thread_ranks):
    models = [nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 4)]
    text = r"rank 0 has parameter weight \(2, 3\) torch.float32 where rank 2 has .*\(4, 3\)"
    with pytest.raises(PayloadMismatchError, match=text):
        Ddp.wrap(models, ["cpu"] * 3)
    meeting = Rendezvous.local(3)

    def rank(k):
        with pytest.raises(PayloadMismatchError, match=text):
            Ddp.wrap(models[k], "cpu", k, meeting)

    thread_ranks(3, rank)


def test_several_models_share_a_rendezvous(thread_ranks):
    meeting = Rendezvous.local(2)

    def rank(k):
        first, second = nn.Linear(2, 1), nn.Linear(5, 1)
        nn.init.constant_(first.weight, k)
        nn.init.constant_(second.weight, 10 + k)
        with (
            Ddp.wrap(first, "cpu", k, meeting) as one,
            Ddp.wrap(second, "cpu", k, meeting) as other,
        ):
            one.sync_params()
            other.sync_params()
        return first.weight.sum().item(), second.weight.sum().item()

    assert thread_ranks(2, rank) == [(0.0, 50.0)] * 2


def test_abort_from_another_thread_frees_a_waiting_rank(thread_ranks):
    meeting = Rendezvous.local(2)
    is_over = threading.Event()

    def rank(k):
        model = with_gradients(model_of(k))
        ddp = Ddp.wrap(model, "cpu", k, meeting)
        if k == 1:
            assert is_over.wait(30)
        else:
            threading.Timer(0.2, ddp.abort).start()
            with pytest.raises(CollectiveError, match="aborted"):
                ddp.sync_params()
            ddp.abort()
            with pytest.raises(CollectiveError, match="aborted"):
                ddp.sync_params()
            is_over.set()
        ddp.close()

    thread_ranks(2, rank)


def test_a_rank_that_does_not_come_is_a_formation_error():
    with pytest.raises(FormationError, match="not all of 2 ranks came within 0.2 s"):
        Ddp.wrap(nn.Linear(1, 1), "cpu", 0, Rendezvous.local(2, timeout_s=0.2))


@pytest.mark.parametrize(
    "arguments",
    [
        (nn.Linear(1, 1), "cpu"),
        (nn.Linear(1, 1), "cpu", 0),
        ([nn.Linear(1, 1)], "cpu"),
        ([nn.Linear(1, 1)], ["cpu", "cpu"]),
        ([], []),
        ([nn.Linear(1, 1)], ["cpu"], 0, Rendezvous.local(1)),
        (nn.Linear(1, 1), "cpu", 3, Rendezvous.local(2)),
    ],
    ids=range(7),
)
def test_arguments_that_do_not_go_together_are_refused(arguments):
    with pytest.raises(ConfigError):
        Ddp.wrap(*arguments)


def process(rank, port, is_by_environment):
    import os

    if is_by_environment:
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2"
        )
        meeting = Rendezvous.from_env()
        assert meeting.rank == rank
    else:
        meeting = Rendezvous.tcp("127.0.0.1", port, 2)
    model = with_gradients(model_of(rank))
    with Ddp.wrap(model, "cpu", rank, meeting) as ddp:
        ddp.sync_params()
        ddp.all_reduce_gradients()
        value = model[0].bias.grad.tolist(), model[0].weight.tolist()
        ddp.sync_buffers()  # the store is rank 0's: nobody leaves before all are through
    return value


@pytest.mark.parametrize("is_by_environment", [False, True], ids=["tcp", "environment"])
def test_processes_meet_at_an_address(process_ranks, is_by_environment):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    first, second = process_ranks(2, process, port, is_by_environment)
    assert first == second
    assert first[0] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE not set"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "1", "RANK": "0"}, "WORLD_SIZE not set"),
        (
            {"MASTER_ADDR": "h", "MASTER_PORT": "x", "RANK": "0", "WORLD_SIZE": "2"},
            "x, 0, 2: must be whole",
        ),
    ],
    ids=["none", "one missing", "no number"],
)
def test_an_environment_that_names_no_place_is_refused(monkeypatch, environment, text):
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=text):
        Rendezvous.from_env()


@pytest.mark.parametrize("device", ["cuda:77", 77, "gpu"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ConfigError, match="device '(cuda:77|gpu)': (torch sees|not a device)"):
        Ddp.wrap([nn.Linear(2, 2)], [device])
