import pytest
import torch
from torch import nn

from flodl import optim
from flodl.optim import Adagrad, Adam, implementation
from flodl.optim.implementation import has_fused_kernel

FUSED = ("SGD", "Adam", "AdamW")


def test_the_cpu_keeps_torchs_default(kind, weights):
    parameters, backward = weights
    optimizer = kind(parameters)
    backward(0)
    optimizer.step()
    group = optimizer.param_groups[0]
    if parameters[0].device.type == "cpu":
        assert optimizer.implementation == "for-loop"
        assert (group.get("fused"), group["foreach"]) == (None, None)


@pytest.mark.parametrize("flag", [{"foreach": True}, {"fused": True}], ids=["foreach", "fused"])
def test_what_was_asked_for_is_kept(flag, weights):
    optimizer = Adam(weights[0], **flag)
    weights[1](0)
    optimizer.step()
    assert optimizer.implementation == next(iter(flag))


def test_the_implementation_of_plain_torch_optimizers_is_told(weights):
    assert implementation(torch.optim.Adam(weights[0], fused=True)) == "fused"
    assert implementation(torch.optim.RMSprop(weights[0], foreach=True)) == "foreach"
    assert implementation(torch.optim.LBFGS(weights[0])) == "for-loop"


def test_the_slowest_of_several_groups_is_told_and_logged(weights, caplog):
    a, b = weights[0]
    optimizer = Adam([{"params": [a], "fused": True}, {"params": [b], "foreach": True}])
    assert optimizer.implementation == "foreach"
    assert "several implementations" in caplog.text


def test_only_some_optimizers_have_fused_kernels(kind, weights):
    found = has_fused_kernel(kind(weights[0]))
    if kind.__name__ in FUSED:
        assert found
    elif kind is not Adagrad:  # depends on the version of torch
        assert not found


@pytest.mark.cuda
def test_the_gpu_uses_fused_kernels_where_there_are_any(kind):
    model = nn.Linear(4, 4).cuda()
    optimizer = kind(model)
    assert optimizer.param_groups[0].get("fused") is None
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    fused = has_fused_kernel(optimizer)
    assert optimizer.implementation == ("fused" if fused else "foreach")
    assert kind.__name__ not in FUSED or fused


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ({"foreach": True}, "foreach"),
        ({"fused": False}, "for-loop"),
        ({"foreach": False}, "fused"),  # the loop was not asked for, only foreach was ruled out
        ({"differentiable": True}, "for-loop"),
    ],
    ids=str,
)
def test_the_gpu_keeps_what_was_asked_for(flag, expected):
    assert Adam(nn.Linear(4, 4).cuda(), **flag).implementation == expected


@pytest.mark.cuda
def test_parameters_may_move_after_the_optimizer_was_built(any_kind):
    model = nn.Linear(4, 4)
    optimizer = any_kind(model, lr=0.1)
    reference = nn.Linear(4, 4)
    reference.load_state_dict(model.state_dict())
    expected = any_kind(reference, lr=0.1)
    model.cuda()
    x = torch.randn(3, 4)
    for _ in range(3):
        for net, opt, given in ((model, optimizer, x.cuda()), (reference, expected, x)):
            opt.zero_grad()
            net(given).square().sum().backward()
            opt.step()
    torch.testing.assert_close(model.weight.cpu(), reference.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
def test_sparse_gradients_are_left_to_torchs_default():
    table = nn.Embedding(8, 2, sparse=True).cuda()
    optimizer = optim.SGD(table, lr=0.1)
    table(torch.tensor([1], device="cuda")).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["fused"] is None


def test_a_loaded_state_is_not_shared_with_the_optimizer_it_came_from(kind):
    model = nn.Linear(4, 4)
    optimizer = kind(model, lr=0.1)
    model(torch.ones(1, 4)).square().sum().backward()
    optimizer.step()
    loaded = kind(nn.Linear(4, 4), lr=0.5)
    loaded.load_state_dict(optimizer.state_dict())
    kept = [
        {name: value.clone() for name, value in state.items() if isinstance(value, torch.Tensor)}
        for state in loaded.state.values()
    ]
    optimizer.step()
    for state, before in zip(loaded.state.values(), kept, strict=True):
        assert all(torch.equal(state[name], value) for name, value in before.items())


@pytest.mark.cuda
def test_a_state_made_on_the_cpu_goes_on_fused(kind):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = kind(model, lr=0.1)
    model(torch.ones(1, 4)).square().sum().backward()
    optimizer.step()
    other = nn.Linear(4, 4)
    other.load_state_dict(model.state_dict())
    other.cuda()
    loaded = kind(other, lr=0.5)
    loaded.load_state_dict(optimizer.state_dict())
    for net, opt in ((model, optimizer), (other, loaded)):
        opt.zero_grad()
        net(torch.ones(1, 4, device=net.weight.device)).square().sum().backward()
        opt.step()
    torch.testing.assert_close(other.weight.cpu(), model.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("first_device", ["cuda", "cpu"])
def test_the_scaler_is_told_whether_the_step_skips_by_itself(first_device):
    optimizer = Adam(nn.Linear(2, 2).to(first_device))
    assert optimizer._step_supports_amp_scaling is (first_device == "cuda")
