import logging
import math

import pytest
import torch
from torch import nn as torch_nn

from flodl.nn import GradScaler, StepResult, cast_parameters, scaler_for
from flodl.nn.precision import has_unscaled
from flodl.optim import SGD, Adam, RMSprop


def scaled_step(model, optimizer, scaler, x):
    optimizer.zero_grad()
    scaler.scale(model(x).sum()).backward()
    result = scaler.step(optimizer)
    scaler.update()
    return result


@pytest.mark.parametrize("kind", [SGD, Adam, RMSprop])
def test_a_step_is_taken_when_gradients_are_finite_and_skipped_when_not(kind, device):
    model = torch_nn.Linear(2, 2).to(device)
    optimizer = kind(model, lr=0.1)
    scaler = GradScaler(1024.0, 4.0, 0.25, 1, device=device.type)
    x = torch.ones(1, 2, device=device)
    before = model.weight.detach().clone()
    result = scaled_step(model, optimizer, scaler, x)
    assert isinstance(result, StepResult)
    assert result.taken
    assert result
    assert not torch.equal(model.weight, before)
    assert scaler.scale_factor == 4096.0
    before = model.weight.detach().clone()
    result = scaled_step(model, optimizer, scaler, x * math.inf)
    assert not result.taken
    assert torch.equal(model.weight, before)
    assert scaler.scale_factor == 1024.0


def test_a_result_stays_true_after_later_steps(device):
    model = torch_nn.Linear(2, 2).to(device)
    optimizer, scaler = SGD(model, lr=0.1), GradScaler(device=device.type)
    x = torch.ones(1, 2, device=device)
    skipped = scaled_step(model, optimizer, scaler, x * math.inf)
    taken = scaled_step(model, optimizer, scaler, x)
    assert (skipped.taken, taken.taken) == (False, True)


def test_unscaled_training_equals_scaled_training(device):
    models = [torch_nn.Linear(2, 2).to(device) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [SGD(model, lr=0.1) for model in models]
    x = torch.randn(4, 2, device=device)
    scaler = GradScaler(device=device.type)
    for _ in range(3):
        optimizers[0].zero_grad()
        models[0](x).sum().backward()
        optimizers[0].step()
        scaled_step(models[1], optimizers[1], scaler, x)
    assert torch.equal(models[0].weight, models[1].weight)


def test_the_state_holds_all_five_values(device):
    scaler = GradScaler(8.0, 3.0, 0.25, 7, device=device.type)
    scaler.scale(torch.ones(1, device=device))
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.25,
        "growth_interval": 7,
        "_growth_tracker": 0,
    }
    other = GradScaler(device=device.type)
    other.load_state_dict(state | {"_growth_tracker": 5})
    assert other.state_dict() == state | {"_growth_tracker": 5}
    assert other.scale_factor == 8.0
    assert scaler.state_kind == "grad_scaler"


def test_unscaling_is_known_for_each_optimizer(device):
    model = torch_nn.Linear(2, 2).to(device)
    optimizer, other = SGD(model, lr=0.1), SGD(model, lr=0.1)
    scaler = GradScaler(device=device.type)
    scaler.scale(model(torch.ones(1, 2, device=device)).sum()).backward()
    assert not has_unscaled(scaler, optimizer)
    scaler.unscale_(optimizer)
    assert has_unscaled(scaler, optimizer)
    assert not has_unscaled(scaler, other)


def test_a_disabled_scaler_passes_everything_through():
    model = torch_nn.Linear(2, 2)
    optimizer, scaler = SGD(model, lr=0.1), GradScaler(enabled=False)
    assert scaled_step(model, optimizer, scaler, torch.ones(1, 2)).taken
    assert scaler.scale_factor == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"init_scale": 0.0},
        {"init_scale": math.nan},
        {"growth": 1.0},
        {"backoff": 1.0},
        {"backoff": 0.0},
        {"interval": 0},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        GradScaler(**settings)


def test_bfloat16_does_without_a_scaler_and_float16_does_not(caplog):
    caplog.set_level(logging.INFO)
    scaler = GradScaler(device="cpu")
    assert scaler_for(torch.bfloat16, scaler) is None
    assert "bfloat16 needs no gradient scaler" in caplog.text
    assert scaler_for(torch.float16, scaler) is scaler
    assert scaler_for(None, scaler) is scaler
    assert "float16 without" not in caplog.text
    assert scaler_for(torch.float16, None) is None
    assert "float16 without a gradient scaler" in caplog.text


def test_parameters_are_cast_in_place_with_gradients_and_state():
    model = torch_nn.Sequential(torch_nn.Linear(3, 2), torch_nn.BatchNorm1d(2))
    optimizer = Adam(model, lr=0.1)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    same = list(model.parameters())
    assert cast_parameters(model, torch.bfloat16, optimizer=optimizer) == 4
    assert all(a is b for a, b in zip(model.parameters(), same, strict=True))
    for parameter in model.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.bfloat16
        assert optimizer.state[parameter]["exp_avg"].dtype == torch.bfloat16
        assert optimizer.state[parameter]["step"].dtype == torch.float32
    assert model[1].running_mean.dtype == torch.float32
    assert cast_parameters(model, torch.bfloat16) == 0
    assert cast_parameters(model, torch.bfloat16, buffers=True) == 2
    assert model[1].running_mean.dtype == torch.bfloat16
    assert model[1].num_batches_tracked.dtype == torch.int64
    optimizer.step()


def test_training_goes_on_after_a_cast():
    model = torch_nn.Linear(3, 2)
    optimizer = SGD(model, lr=0.1, momentum=0.9)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        cast_parameters(model, dtype, optimizer=optimizer)
        optimizer.zero_grad()
        model(torch.ones(1, 3, dtype=dtype)).sum().backward()
        optimizer.step()
        assert optimizer.state[model.weight]["momentum_buffer"].dtype == dtype


def test_state_that_is_left_behind_is_a_warning(caplog):
    model = torch_nn.Linear(3, 2)
    optimizer = Adam(model)
    cast_parameters(model, torch.float64)
    assert caplog.text == ""
    model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()
    cast_parameters(model, torch.float32)
    assert "holds state of the old dtype" in caplog.text


def test_integers_are_skipped_and_impossible_requests_refused():
    whole = torch_nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)
    assert cast_parameters([whole, torch_nn.Parameter(torch.zeros(2))], torch.float64) == 1
    assert whole.dtype == torch.int64
    with pytest.raises(TypeError, match=r"dtype=torch\.int32"):
        cast_parameters([whole], torch.int32)
    with pytest.raises(TypeError, match="only a module has buffers"):
        cast_parameters([whole], torch.float64, buffers=True)
