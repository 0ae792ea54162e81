import math

import pytest
import torch
from torch.nn import functional

from flodl.nn import FocalLoss, focal_loss, sigmoid_focal_loss


def batch(shape=(5, 4), **kwargs):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
    return logits.requires_grad_(), target


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 3, 2, 2)], ids=str)
@pytest.mark.parametrize("alpha", [None, 0.25, "weights"])
def test_the_value_is_that_of_the_formula(shape, alpha):
    logits, target = batch(shape)
    weights = torch.linspace(0.5, 2.0, shape[1], dtype=torch.float64)
    given = weights if alpha == "weights" else alpha
    p = torch.softmax(logits, 1).gather(1, target.unsqueeze(1)).squeeze(1)
    a = weights[target] if alpha == "weights" else (1.0 if alpha is None else alpha)
    expected = -a * (1 - p) ** 1.5 * p.log()
    for reduction, reduced in (
        ("none", expected),
        ("sum", expected.sum()),
        ("mean", expected.mean()),
    ):
        value = focal_loss(logits, target, given, 1.5, reduction=reduction)
        torch.testing.assert_close(value, reduced, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [None, 0.25, 1.0])
def test_without_gamma_it_is_alpha_times_cross_entropy_exactly(alpha):
    logits, target = batch((7, 5))
    target[2] = -100
    factor = 1.0 if alpha is None else alpha
    for reduction in ("mean", "sum", "none"):
        plain = functional.cross_entropy(logits, target, reduction=reduction)
        assert torch.equal(
            focal_loss(logits, target, alpha, 0.0, reduction=reduction), factor * plain
        )


def test_ignored_targets_count_nothing():
    logits, target = batch((6, 4))
    kept = focal_loss(logits[:4], target[:4], torch.ones(4))
    target[4:] = 9
    torch.testing.assert_close(focal_loss(logits, target, torch.ones(4), ignore_index=9), kept)
    each = focal_loss(logits, target, ignore_index=9, reduction="none")
    assert torch.equal(each[4:], torch.zeros(2, dtype=torch.float64))
    each.sum().backward()
    assert torch.equal(logits.grad[4:], torch.zeros(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_gradients_stay_finite_at_certain_and_impossible_classes(gamma):
    logits = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    loss = focal_loss(logits, torch.tensor([0, 0]), None, gamma)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    if gamma:
        logits = torch.tensor([200.0, -200.0], requires_grad=True)
        sigmoid_focal_loss(logits, torch.ones(2), gamma=gamma).backward()
        assert torch.isfinite(logits.grad).all()


def test_small_misses_keep_their_precision():
    # 1 - p is about 1e-9: subtracting p from 1 in float32 would give 0.
    logits = torch.tensor([[20.0, 0.0]])
    exact = math.exp(-20) / (1 + math.exp(-20))
    value = focal_loss(logits, torch.tensor([0]), None, 0.5)
    clamped = max(exact, torch.finfo(torch.float32).eps)
    assert value.item() == pytest.approx(clamped**0.5 * math.log1p(math.exp(-20)), rel=1e-2)


@pytest.mark.parametrize("alpha", [0.25, None])
def test_the_binary_form_is_that_of_its_formula(alpha):
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 2, (6, 3), generator=generator)
    p = torch.where(target == 1, torch.sigmoid(logits), torch.sigmoid(-logits))
    weight = 1.0 if alpha is None else torch.where(target == 1, alpha, 1 - alpha)
    expected = -weight * (1 - p) ** 2 * p.log()
    for reduction, value in (
        ("none", expected),
        ("mean", expected.mean()),
        ("sum", expected.sum()),
    ):
        result = sigmoid_focal_loss(logits, target, alpha, reduction=reduction)
        torch.testing.assert_close(result, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_gradients_are_those_of_finite_differences(gamma, second):
    check = torch.autograd.gradgradcheck if second else torch.autograd.gradcheck
    logits, target = batch((4, 3))
    weights = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    for alpha in (0.25, None, weights):
        assert check(
            lambda x, a=alpha: focal_loss(x, target, a, gamma), [logits], eps=1e-6, atol=1e-6
        )
    soft = torch.rand(4, 3, dtype=torch.float64)
    assert check(lambda x: sigmoid_focal_loss(x, soft, gamma=gamma), [logits], eps=1e-6, atol=1e-6)


def test_the_module_is_the_function_and_moves_its_weights():
    logits, target = batch((5, 4))
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    module = FocalLoss(weights, 1.0, reduction="sum", ignore_index=3)
    expected = focal_loss(logits, target, weights, 1.0, reduction="sum", ignore_index=3)
    assert torch.equal(module(logits, target), expected)
    assert "alpha" in module.state_dict()
    assert module.double().alpha.dtype == torch.float64
    assert "gamma=1.0" in repr(module)
    assert torch.equal(FocalLoss()(logits, target), focal_loss(logits, target))


@pytest.mark.parametrize(
    ("logits", "target", "settings", "message"),
    [
        ((3, 4), torch.tensor([0, 1, 4]), {}, "classes 0 to 4; the logits have 4"),
        ((3, 4), torch.tensor([0, -1, 2]), {}, "classes -1 to 2"),
        ((3, 4), torch.tensor([0, 1]), {}, "do not fit"),
        ((4,), torch.tensor(1), {}, "do not fit"),
        ((3, 4), torch.tensor([0, 1, 2]), {"gamma": -1.0}, "gamma=-1.0"),
        ((3, 4), torch.tensor([0, 1, 2]), {"gamma": math.nan}, "gamma=nan"),
        ((3, 4), torch.tensor([0, 1, 2]), {"alpha": torch.ones(3)}, r"must be \[4\]"),
        ((3, 4), torch.tensor([0, 1, 2]), {"reduction": "avg"}, "reduction='avg'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_impossible_input_is_refused(logits, target, settings, message):
    with pytest.raises(ValueError, match=message):
        focal_loss(torch.zeros(logits), target, **settings)


def test_targets_that_are_no_indices_are_refused():
    with pytest.raises(TypeError, match=r"target is torch\.float32"):
        focal_loss(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="they must be equal"):
        sigmoid_focal_loss(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="gamma"):
        FocalLoss(gamma=-1.0)
