import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.data import Batch
from flodl.engine.schedules import made_scheduler
from flodl.engine.step import TrainStep
from flodl.nn.schedulers import StepDecay

BATCH = Batch([torch.ones(4, 1)])


def stepper(scheduler=None, lr=0.5):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    made = made_scheduler(scheduler, optimizer, world_size=4)
    return TrainStep(lambda m, b: m(b[0]).sum() * 0, model, optimizer, scheduler=made)


def rates(step, count, scales):
    found = []
    for index in range(count):
        if index in scales:
            step.set_lr_scale(scales[index])
        step(BATCH)
        found.append(step.current_lr)
    return found


def test_a_scale_multiplies_what_the_schedule_says():
    step = stepper(StepDecay(1.0, 2, 0.5))
    assert rates(step, 6, {1: 4.0, 4: 1.0}) == [1.0, 4.0, 2.0, 2.0, 0.25, 0.25]


def test_without_a_schedule_it_multiplies_the_optimizers_rates_once():
    assert rates(stepper(), 4, {1: 4.0, 3: 2.0}) == [0.5, 2.0, 2.0, 1.0]


def test_a_schedule_of_torch_goes_on_from_the_scaled_rate():
    def halving(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    assert rates(stepper(halving, lr=1.0), 4, {2: 4.0}) == [0.5, 0.25, 0.5, 0.25]


def test_a_factory_gets_the_number_of_ranks():
    step = stepper(lambda world_size: StepDecay(0.1 * world_size, 9, 0.5))
    assert rates(step, 1, {}) == [0.4]


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_must_be_positive_and_finite(factor):
    with pytest.raises(ConfigError, match="must be positive and finite"):
        stepper().set_lr_scale(factor)


@pytest.mark.parametrize("given", [3, "cosine", object()])
def test_what_is_no_schedule_is_refused(given):
    with pytest.raises(ConfigError, match="must have a method lr"):
        stepper(given)
