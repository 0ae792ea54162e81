import pytest
import torch
from torch import nn

from flodl.data import Batch
from flodl.distributed.averaging.moments import SharedMoments
from flodl.engine.step import TrainStep

STEPS = 2000


def second_moments(kind, weights, *, corrects=True, noise=1.0, **options):
    """Return the mean square that one rank has, that of averaged gradients, and the signal's."""
    chance = torch.Generator().manual_seed(0)
    signal = torch.linspace(-1, 1, 500)
    own, shared = nn.Parameter(torch.zeros(500)), nn.Parameter(torch.zeros(500))
    alone, together = (kind([one], lr=0.0, betas=(0.9, 0.99), **options) for one in (own, shared))
    moments = SharedMoments.of(alone)
    for step in range(STEPS):
        moments.follow(world=len(weights) if corrects else 1, steps=step)
        if corrects:
            moments.weigh(weights)
        gradients = signal + noise * torch.randn(len(weights), 500, generator=chance)
        own.grad = gradients[0].clone()
        shared.grad = torch.tensor(weights) @ gradients
        alone.step()
        together.step()
    squares = [
        o.state[p]["exp_avg_sq"].mean().item() for o, p in ((alone, own), (together, shared))
    ]
    return *squares, signal.square().mean().item()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("weights", [[0.5] * 2, [1 / 16] * 16, [0.1, 0.9], [0.7, 0.1, 0.1, 0.1]])
def test_the_moment_is_that_of_averaged_gradients(kind, weights):
    found, averaged, signal = second_moments(kind, weights)
    # m carries a part of the noise of its own: (1 - b) / (1 + b) of it, b = 0.9
    own_noise = (1 - sum(weight**2 for weight in weights)) * 0.1 / 1.9
    assert found == pytest.approx(averaged + own_noise, rel=0.03)
    alone, *_ = second_moments(kind, weights, corrects=False)
    assert alone == pytest.approx(signal + 1, rel=0.03)


def test_without_noise_nothing_changes():
    found, averaged, _ = second_moments(torch.optim.Adam, [1 / 8] * 8, noise=0.0)
    assert found == pytest.approx(averaged, rel=1e-3)


def moments_of(*, betas=(0.9, 0.999)):
    return SharedMoments.of(torch.optim.Adam([nn.Parameter(torch.zeros(3))], lr=0.1, betas=betas))


@pytest.mark.parametrize(("beta", "warm"), [(0.9, 10), (0.99, 100), (0.5, 2)])
def test_the_first_steps_are_adams_own_until_the_mean_estimates_something(beta, warm):
    moments = moments_of(betas=(beta, 0.999))
    changes = [step for step in range(300) if moments.follow(world=4, steps=step)]
    assert changes == [warm]
    moments.restart()
    changes = [step for step in range(300, 700) if moments.follow(world=4, steps=step)]
    assert changes == [300, 299 + warm]


def test_another_number_of_ranks_is_another_correction():
    moments = moments_of()
    worlds = [4, 4, 3, 3, 1, 1, 2]
    assert [moments.follow(world=world, steps=30) for world in worlds] == [1, 0, 1, 0, 1, 0, 1]


def test_shares_change_the_correction_when_they_last():
    moments = moments_of()
    moments.follow(world=2, steps=30)
    windows = [[1.0, 0.0], [], [0.6, 0.4], *[[0.9, 0.1], [0.88, 0.12]] * 5]
    changes = []
    for weights in windows:
        moments.weigh(weights)
        changes.append(moments.follow(world=2, steps=30))
    assert [window for window, is_new in enumerate(changes) if is_new] == [4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moments_stay_positive_under_any_gradients(dtype):
    chance = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(2000, dtype=dtype))
    optimizer = torch.optim.Adam([weight], lr=0.0)
    moments = SharedMoments.of(optimizer)
    moments.follow(world=1000, steps=100)
    for _ in range(200):
        scale = 10.0 ** torch.randint(-6, 7, (2000,), generator=chance)
        weight.grad = (torch.randn(2000, generator=chance) * scale).to(dtype)
        optimizer.step()
        assert (optimizer.state[weight]["exp_avg_sq"] >= 0).all()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam])
@pytest.mark.parametrize("maximize", [False, True])
def test_weight_decay_in_the_gradient_is_part_of_it(kind, maximize):
    sign = -1 if maximize else 1
    weight = nn.Parameter(torch.linspace(0.5, 2, 100))
    optimizer = kind([weight], lr=1e-3, weight_decay=0.1, maximize=maximize)
    moments = SharedMoments.of(optimizer)
    moments.follow(world=8, steps=100)
    chance = torch.Generator().manual_seed(0)
    for _ in range(200):  # at rest but for noise: the loss pulls as hard as the decay
        noise = 1e-3 * torch.randn(100, generator=chance)
        weight.grad = sign * (noise - 0.1 * weight.detach())
        optimizer.step()
    square = optimizer.state[weight]["exp_avg_sq"]
    assert (square > 0).all()
    expected = (1 - 0.999**200) * 1e-6 * (1 / 8 + 7 / 8 * 0.1 / 1.9)
    assert square.mean().item() == pytest.approx(expected, rel=0.1)


def test_a_step_that_its_kernel_skips_changes_no_moment():
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([weight], lr=0.1, fused=True)
    moments = SharedMoments.of(optimizer)
    for gradient, is_bad in ((1.0, 0.0), (2.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)):
        moments.follow(world=2, steps=100)
        weight.grad = torch.full((3,), gradient)
        before = {name: t.clone() for name, t in optimizer.state[weight].items()}
        optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(is_bad)
        optimizer.step()
        after = optimizer.state[weight]
        unchanged = [torch.equal(before[name], after[name]) for name in before]
        assert unchanged == [bool(is_bad)] * len(unchanged)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.Adam, {"betas": (torch.tensor(0.9), torch.tensor(0.999)), "foreach": False}),
    ],
)
def test_other_optimizers_are_left_alone(kind, options):
    assert SharedMoments.of(kind([nn.Parameter(torch.zeros(2))], lr=0.1, **options)) is None


def test_parameters_without_a_gradient_are_left_alone():
    used, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([{"params": [used]}, {"params": [unused]}], lr=0.1)
    moments = SharedMoments.of(optimizer)
    moments.follow(world=2, steps=100)
    for gradient in (1.0, -1.0):
        used.grad = torch.full((2,), gradient)
        optimizer.step()
    assert unused not in optimizer.state
    # the first step has no moments to correct; the second sees g = -1 where m = 0.1
    expected = 0.999 * 0.001 + 0.001 * (0.5 + 0.5 * 0.1**2)
    assert optimizer.state[used]["exp_avg_sq"].tolist() == pytest.approx([expected] * 2, rel=1e-4)


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


def test_another_object_goes_on_from_the_state():
    one, other = moments_of(), moments_of()
    for step in range(60):
        one.follow(world=3, steps=step)
        one.weigh([0.6, 0.3, 0.1])
    other.load(one.state())
    other.follow(world=3, steps=60)
    one.follow(world=3, steps=60)
    assert other._part == one._part == 1 - (0.36 + 0.09 + 0.01)
