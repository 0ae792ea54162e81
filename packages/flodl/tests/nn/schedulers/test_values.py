"""Schedulers as values: equal, hashable, picklable, through plain maps, on optimizers."""

import json
import pickle

import pytest
import torch

from flodl.nn import schedulers
from flodl.nn.schedulers import (
    CosineScheduler,
    CyclicLR,
    ExponentialLR,
    MultiStepLR,
    OneCycleLR,
    PlateauScheduler,
    Scheduler,
    SequentialScheduler,
    StepDecay,
    WarmupScheduler,
    as_torch,
    lr_table,
)
from flodl.nn.schedulers.base import Schedule

PURE = [
    StepDecay(0.3, 2, 0.5),
    ExponentialLR(0.3, 0.9),
    MultiStepLR(0.3, [3, 1], 0.5),
    CosineScheduler(0.3, 0.1, 7),
    OneCycleLR(0.3, 9, 0.4),
    CyclicLR(0.1, 0.3, 2, 3),
    WarmupScheduler(CosineScheduler(0.3, 0.1, 7), 0.3, 3),
    SequentialScheduler([(StepDecay(0.3, 2, 0.5), 3), (ExponentialLR(0.1, 0.9), 1)]),
    CosineScheduler(0.3, 0.1, 7) * 0.5,
]
ALL = [*PURE, PlateauScheduler(0.3, 2, 0.5, 0.01, mode="max", threshold=0.1)]


@pytest.mark.parametrize("scheduler", PURE, ids=repr)
def test_equal_schedulers_are_equal_values(scheduler):
    copy = pickle.loads(pickle.dumps(scheduler))
    assert copy == scheduler
    assert hash(copy) == hash(scheduler)
    assert scheduler != StepDecay(9.0, 1, 0.5)
    with pytest.raises(AttributeError):
        scheduler.base_lr = 1.0


@pytest.mark.parametrize("scheduler", ALL, ids=repr)
def test_plain_maps_go_through_json_and_back(scheduler):
    plain = json.loads(json.dumps(scheduler.to_dict()))
    for kind in (Schedule, type(scheduler)):
        copy = kind.from_dict(plain)
        assert type(copy) is type(scheduler)
        assert copy.to_dict() == scheduler.to_dict()
        assert [copy.lr(step) for step in range(12)] == [scheduler.lr(step) for step in range(12)]


def test_a_plain_map_of_something_else_is_refused():
    with pytest.raises(ValueError, match="no scheduler of type 'Lineer'; there are .*StepDecay"):
        Schedule.from_dict({"type": "Lineer"})
    with pytest.raises(ValueError, match="no scheduler of type None"):
        Schedule.from_dict({})
    with pytest.raises(TypeError, match="those of a StepDecay"):
        OneCycleLR.from_dict(StepDecay(1.0, 1, 0.5).to_dict())
    with pytest.raises(TypeError):
        Schedule.from_dict({"type": "StepDecay", "base_lr": 1.0})


class Constant:
    def lr(self, step: int) -> float:
        return 0.25


def test_a_users_own_scheduler_can_be_wrapped_but_has_no_plain_map():
    assert isinstance(Constant(), Scheduler)
    scheduler = WarmupScheduler(Constant(), 1.0, 2)
    assert scheduler.lr(2) == 0.25
    with pytest.raises(TypeError, match="Constant is no scheduler of flodl"):
        scheduler.to_dict()
    with pytest.raises(TypeError, match="depends on the step alone"):
        scheduler.observe(1.0)


def test_apply_sets_every_group_and_returns_the_rate():
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    optimizer.param_groups[1]["lr"] = tensor = torch.tensor(1.0)
    assert schedulers.apply(ExponentialLR(1.0, 0.5), optimizer, 2) == 0.25
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.25, 0.25]
    assert optimizer.param_groups[1]["lr"] is tensor


@pytest.mark.parametrize("scheduler", ALL, ids=repr)
def test_the_table_holds_the_rates_in_float32(scheduler):
    table = lr_table(scheduler, 3, 20)
    assert table.dtype == torch.float32
    assert table.device.type == "cpu"
    expected = torch.tensor([scheduler.lr(3 + k) for k in range(20)], dtype=torch.float64)
    assert torch.equal(table, expected.float())


def test_tables_may_be_empty_but_not_negative():
    assert lr_table(StepDecay(1.0, 1, 0.5), 5, 0).shape == (0,)
    with pytest.raises(ValueError, match="n=-1"):
        lr_table(StepDecay(1.0, 1, 0.5), 0, -1)


@pytest.mark.parametrize("scheduler", PURE, ids=repr)
def test_as_torch_gives_the_same_rates_whatever_the_groups_began_with(scheduler):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.0, 7.0)]
    optimizer = torch.optim.SGD(groups)
    stepper = as_torch(scheduler, optimizer)
    assert isinstance(stepper, torch.optim.lr_scheduler.LRScheduler)
    for step in range(12):
        assert [group["lr"] for group in optimizer.param_groups] == [scheduler.lr(step)] * 2
        optimizer.step()
        stepper.step()


def test_as_torch_can_be_saved_and_resumed():
    def build():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        return optimizer, as_torch(ExponentialLR(1.0, 0.5), optimizer)

    optimizer, stepper = build()
    for _ in range(3):
        optimizer.step()
        stepper.step()
    other, resumed = build()
    resumed.load_state_dict(stepper.state_dict())
    other.load_state_dict(optimizer.state_dict())
    other.step()
    resumed.step()
    assert other.param_groups[0]["lr"] == 0.0625
