import math

import pytest
import torch
from torch import nn as torch_nn

from flodl.nn import GradScaler, clip_grad_norm, clip_grad_value
from flodl.optim import SGD


@pytest.fixture
def parameters(device):
    shapes = [(3, 2), (4,), (), (2, 2)]
    result = [torch_nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes]
    for parameter in result[:3]:
        parameter.grad = torch.randn(parameter.shape, device=device)
    return result


@pytest.mark.parametrize("norm_type", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.1, 1000.0])
def test_the_norm_before_clipping_is_returned_and_the_gradients_scaled(
    parameters, norm_type, max_norm
):
    whole = torch.cat([p.grad.flatten() for p in parameters[:3]])
    before = torch.linalg.vector_norm(whole, norm_type)
    result = clip_grad_norm(parameters, max_norm, norm_type)
    assert result.shape == ()
    assert result.device == parameters[0].device
    torch.testing.assert_close(result, before)
    after = torch.cat([p.grad.flatten() for p in parameters[:3]])
    expected = whole * min(max_norm / (before.item() + 1e-6), 1.0)
    torch.testing.assert_close(after, expected)
    assert parameters[3].grad is None


def test_values_are_clamped_and_the_largest_is_returned(parameters):
    originals = [p.grad.clone() for p in parameters[:3]]
    largest = max(g.abs().max().item() for g in originals)
    result = clip_grad_value(parameters, 0.3, return_max=True)
    assert result.shape == ()
    assert result.item() == largest
    for parameter, original in zip(parameters, originals, strict=False):
        assert torch.equal(parameter.grad, original.clamp(-0.3, 0.3))
    assert clip_grad_value(parameters, 0.3) is None


def test_without_gradients_everything_is_zero():
    bare = torch_nn.Linear(2, 2)
    assert clip_grad_norm(bare, 1.0) == 0
    assert clip_grad_norm([], 1.0) == 0
    assert clip_grad_value(bare, 1.0, return_max=True) == 0


def test_modules_tensors_and_iterators_are_accepted(parameters):
    model = torch_nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    assert clip_grad_norm(model, 10.0) == clip_grad_norm(iter(model.parameters()), 10.0)
    assert clip_grad_norm(parameters[0], 10.0) == parameters[0].grad.norm()


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_limits_must_be_positive(parameters, limit):
    before = parameters[0].grad.clone()
    with pytest.raises(ValueError, match="max_norm="):
        clip_grad_norm(parameters, limit)
    with pytest.raises(ValueError, match="max_val="):
        clip_grad_value(parameters, limit)
    assert torch.equal(parameters[0].grad, before)


def test_nan_is_told_by_both_and_an_error_when_asked(parameters):
    parameters[0].grad[0, 0] = math.nan
    assert clip_grad_value(parameters, 1.0, return_max=True).isnan()
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm(parameters, 1.0, error_if_nonfinite=True)
    assert clip_grad_norm(parameters, 1.0).isnan()


def test_scaled_gradients_are_not_clipped(device):
    model = torch_nn.Linear(2, 2).to(device)
    optimizer = SGD(model, lr=0.1)
    scaler = GradScaler(device=device.type)
    scaler.scale(model(torch.ones(1, 2, device=device)).sum()).backward()
    with pytest.raises(RuntimeError, match=r"scaler\.unscale_\(optimizer\)"):
        clip_grad_norm(model, 1.0, scaler=scaler, optimizer=optimizer)
    with pytest.raises(ValueError, match="needs the optimizer="):
        clip_grad_norm(model, 1.0, scaler=scaler)
    scaler.unscale_(optimizer)
    norm = clip_grad_norm(model, 1.0, scaler=scaler, optimizer=optimizer)
    torch.testing.assert_close(norm.item(), math.sqrt(6.0))
    scaler.step(optimizer)
    scaler.update()
    with pytest.raises(RuntimeError, match="still multiplied"):
        clip_grad_norm(model, 1.0, scaler=scaler, optimizer=optimizer)
    clip_grad_norm(model, 1.0, scaler=GradScaler(enabled=False), optimizer=optimizer)


@pytest.mark.cuda
def test_clipping_never_waits_for_the_gpu():
    parameters = [torch_nn.Parameter(torch.zeros(4, device="cuda")) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.randn(4, device="cuda")
    clip_grad_norm(parameters, 1.0)  # the first call may set things up
    torch.cuda.set_sync_debug_mode("error")
    try:
        norm = clip_grad_norm(parameters, 1.0)
        largest = clip_grad_value(parameters, 0.1, return_max=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert norm.item() <= 1.001
    assert largest.item() <= 1.001


@pytest.mark.cuda
def test_parameters_of_several_devices_have_one_norm():
    parameters = [torch_nn.Parameter(torch.zeros(4, device=place)) for place in ("cuda", "cpu")]
    for parameter in parameters:
        parameter.grad = torch.full((4,), 3.0, device=parameter.device)
    norm = clip_grad_norm(parameters, 1.0)
    assert norm.device.type == "cuda"
    assert norm.item() == pytest.approx(math.sqrt(72))
    assert clip_grad_value(parameters, 0.1, return_max=True).item() == pytest.approx(
        3 / math.sqrt(72)
    )
