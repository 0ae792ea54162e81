"""Two ranks train as one process would on the concatenated batches."""

import functools

import pytest
import torch
from torch import nn

from flodl.distributed.averaging.gradients import GradientPlane
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.formation import Formation
from flodl.distributed.collective.store import MemoryStore

STEPS = 20
SIZES = (5, 3)  # unequal: the mean must weigh samples, not ranks


def model_of():
    generator = torch.Generator().manual_seed(1)  # torch's own is shared by the threads
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return model


def batches():
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        x = torch.randn(sum(SIZES), 6, generator=generator)
        yield x, torch.stack([x.sum(1), x.prod(1)], 1)


def gradient(model, x, y):
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()


def alone(optimizer_of):
    model = model_of()
    optimizer = optimizer_of(model.parameters())
    for x, y in batches():
        gradient(model, x, y)
        optimizer.step()
    return model


sgd = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
adam = functools.partial(torch.optim.Adam, lr=0.01)


@pytest.mark.parametrize("optimizer_of", [sgd, adam], ids=["sgd", "adam"])
def test_averaged_gradients_train_like_one_process(thread_ranks, optimizer_of):
    memory = MemoryStore()

    def rank(k):
        model = model_of()
        optimizer = optimizer_of(model.parameters())
        plane = GradientPlane(model, PlaneConfig())
        plane.form(Formation.of_size(2, k), ControlStore(memory))
        for step, (x, y) in enumerate(batches(), 1):
            gradient(model, x.split(SIZES)[k], y.split(SIZES)[k])
            plane.contribute(step, SIZES[k])
            assert plane.wait(timeout_s=30) is Progress.DONE
            assert plane.commit().is_usable
            optimizer.step()
        plane.close()
        return list(model.parameters())

    wanted = alone(optimizer_of)
    first, second = thread_ranks(2, rank)
    for one, other, single in zip(first, second, wanted.parameters(), strict=True):
        assert torch.equal(one, other)
        # Adam divides by a root of squares: an error of one bit in a tiny gradient grows
        torch.testing.assert_close(one, single, rtol=0, atol=1e-6 if optimizer_of is sgd else 2e-5)


def trained_by_parameters(thread_ranks, wire, optimizer_of=sgd):
    memory = MemoryStore()

    def rank(k):
        model = model_of()
        # momentum is averaged too: a step is linear in both, so this equals averaged gradients
        optimizer = optimizer_of(model.parameters())
        plane = ParameterPlane(
            model, PlaneConfig(wire=wire, inner_state="average"), optimizer=optimizer
        )
        plane.form(Formation.of_size(2, k), ControlStore(memory))
        plane.synchronize(0, [1])
        for window, (x, y) in enumerate(batches(), 1):
            gradient(model, x.split(SIZES)[k], y.split(SIZES)[k])
            optimizer.step()
            plane.snapshot(window)
            plane.contribute(window, SIZES[k] / sum(SIZES))
            assert plane.wait(timeout_s=30) is Progress.DONE
            plane.commit()
        plane.close()
        return list(model.parameters())

    first, second = thread_ranks(2, rank)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    return max(
        (one - single).abs().max().item()
        for one, single in zip(first, alone(optimizer_of).parameters(), strict=True)
    )


def test_parameters_averaged_at_every_step_train_like_one_process(thread_ranks):
    assert trained_by_parameters(thread_ranks, "fp32") < 1e-6


def test_bf16_differences_stay_near_and_bf16_weights_would_not(thread_ranks, monkeypatch):
    gentle = functools.partial(torch.optim.SGD, lr=0.002, momentum=0.9)
    near = trained_by_parameters(thread_ranks, "bf16", gentle)
    monkeypatch.setattr(ParameterPlane, "_travelling", lambda plane: plane._values)
    monkeypatch.setattr(
        "flodl.distributed.averaging.parameters.absolute", lambda average, base: average
    )
    mutant = trained_by_parameters(thread_ranks, "bf16", gentle)
    assert near < 3e-4
    assert mutant > 1e-3
