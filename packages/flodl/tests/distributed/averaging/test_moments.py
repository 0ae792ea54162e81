import pytest
import torch
from torch import nn

from flodl.data import Batch
from flodl.distributed.averaging.moments import SharedMoments
from flodl.engine.step import TrainStep

STEPS = 3000


def second_moment(kind, world, *, corrects, seed=0, noise=1.0):
    """Return the mean second moment of one rank whose gradients are a signal and noise."""
    chance = torch.Generator().manual_seed(seed)
    weight = nn.Parameter(torch.zeros(500))
    optimizer = kind([weight], lr=0.0, betas=(0.9, 0.99))
    moments = SharedMoments.of(optimizer)
    signal = torch.linspace(-1, 1, 500)
    for step in range(STEPS):
        weight.grad = signal + noise * torch.randn(500, generator=chance)
        optimizer.step()
        moments.follow(world=world if corrects else 1, steps=step + 1)
    return optimizer.state[weight]["exp_avg_sq"].mean().item(), signal.square().mean().item()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("world", [2, 4, 16])
def test_the_moment_is_that_of_a_gradient_averaged_over_all_ranks(kind, world):
    found, signal = second_moment(kind, world, corrects=True)
    # m carries a part of the noise of its own: (1 - b) / (1 + b) of it, b = 0.9
    expected = signal + 1 / world + (1 - 1 / world) * 0.1 / 1.9
    assert found == pytest.approx(expected, rel=0.03)
    alone, _ = second_moment(kind, world, corrects=False)
    assert alone == pytest.approx(signal + 1, rel=0.03)


def test_without_noise_nothing_changes():
    found, signal = second_moment(torch.optim.Adam, 8, corrects=True, noise=0.0)
    assert found == pytest.approx(signal, rel=1e-3)


def test_the_first_steps_are_adams_own():
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    moments = SharedMoments.of(optimizer)
    for step in range(1, 25):
        weight.grad = torch.tensor([1.0, -2.0, 0.0])
        optimizer.step()
        assert moments.follow(world=4, steps=step) == (step == 20)
    assert moments.follow(world=3, steps=25)
    assert not moments.follow(world=3, steps=26)
    assert moments.follow(world=1, steps=27)


def test_moments_stay_positive_under_any_gradients():
    chance = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(2000))
    optimizer = torch.optim.Adam([weight], lr=0.0)
    moments = SharedMoments.of(optimizer)
    moments.follow(world=1000, steps=100)
    for _ in range(200):
        scale = 10.0 ** torch.randint(-6, 7, (2000,), generator=chance)
        weight.grad = torch.randn(2000, generator=chance) * scale
        optimizer.step()
        assert (optimizer.state[weight]["exp_avg_sq"] >= 0).all()


@pytest.mark.parametrize(
    ("kind", "options"),
    [(torch.optim.SGD, {}), (torch.optim.RMSprop, {}), (torch.optim.Adam, {"amsgrad": True})],
)
def test_other_optimizers_are_left_alone(kind, options):
    assert SharedMoments.of(kind([nn.Parameter(torch.zeros(2))], lr=0.1, **options)) is None


def test_parameters_without_a_gradient_are_left_alone():
    used, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([{"params": [used]}, {"params": [unused]}], lr=0.1)
    moments = SharedMoments.of(optimizer)
    moments.follow(world=2, steps=100)
    used.grad = torch.ones(2)
    optimizer.step()
    assert unused not in optimizer.state
    assert optimizer.state[used]["exp_avg_sq"][0].item() < 1e-3


@pytest.mark.cuda
def test_captured_steps_correct_their_moments_like_eager_ones():
    def trained(capture):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        moments = SharedMoments.of(optimizer)
        step = TrainStep(
            lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
            model,
            optimizer,
            capture=capture,
        )
        for number in range(60):
            x, y = torch.randn(8, 16, device="cuda"), torch.randn(8, 4, device="cuda")
            if moments.follow(world=2 if number < 40 else 3, steps=number):
                step.invalidate("the share of a rank in Adam's moments")
            step(Batch([x, y]))
        stats = step.stats()
        values = [state["exp_avg_sq"] for state in optimizer.state.values()]
        return [*model.parameters(), *values], stats

    captured, stats = trained("require")
    eager, _ = trained("off")
    assert stats.captured > 40
    assert all(map(torch.equal, captured, eager))
