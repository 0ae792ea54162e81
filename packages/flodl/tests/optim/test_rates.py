import math

import pytest
import torch

from flodl.optim import SGD, Adam, get_lr, scale_lr, set_group_lr, set_lr


@pytest.fixture
def optimizer(weights):
    a, b = weights[0]
    return SGD.with_groups().group([a], 0.1).group([b], torch.tensor(0.2)).build()


def test_set_lr_sets_all_groups_and_keeps_tensors(optimizer):
    rate = optimizer.param_groups[1]["lr"]
    optimizer.set_lr(0.5)
    assert [group.lr for group in optimizer.groups] == [0.5, 0.5]
    assert optimizer.param_groups[1]["lr"] is rate


def test_one_group_is_set_alone(optimizer):
    rate = optimizer.param_groups[1]["lr"]
    optimizer.set_group_lr(1, 0.5)
    assert [group.lr for group in optimizer.groups] == [0.1, 0.5]
    assert optimizer.param_groups[1]["lr"] is rate


def test_rates_are_scaled(optimizer):
    rate = optimizer.param_groups[1]["lr"]
    optimizer.scale_lr(0.5)
    assert [group.lr for group in optimizer.groups] == pytest.approx([0.05, 0.1])
    assert optimizer.param_groups[1]["lr"] is rate


@pytest.mark.parametrize("index", [2, -1])
def test_a_group_that_does_not_exist_is_an_index_error(optimizer, index):
    with pytest.raises(IndexError, match="the optimizer has 2 groups"):
        optimizer.set_group_lr(index, 0.1)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_impossible_rates_are_refused(optimizer, value):
    for call in (optimizer.set_lr, optimizer.scale_lr, lambda v: optimizer.set_group_lr(0, v)):
        with pytest.raises(ValueError, match="finite and not negative"):
            call(value)
    assert optimizer.lr == 0.1


def test_one_tensor_for_all_groups_becomes_one_each(weights):
    optimizer = Adam([{"params": [p]} for p in weights[0]], lr=torch.tensor(0.1))
    optimizer.set_group_lr(0, 0.5)
    assert [group.lr for group in optimizer.groups] == pytest.approx([0.5, 0.1])


def test_the_functions_work_on_any_torch_optimizer(weights):
    plain = torch.optim.Adam([{"params": [p]} for p in weights[0]], lr=torch.tensor(0.1))
    set_lr(plain, 0.4)
    scale_lr(plain, 0.5)
    assert get_lr(plain) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="one tensor with that of another group"):
        set_group_lr(plain, 0, 0.3)
