import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.inner import InitialState, averaged_state


def trained(optimizer_of, steps=3):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = optimizer_of(model.parameters())
    return model, optimizer, lambda: _train(model, optimizer, steps)


def _train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()


OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.1),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.1, initial_accumulator_value=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_state_steps_like_a_fresh_one_and_keeps_its_place(name):
    model, optimizer, train = trained(OPTIMIZERS[name])
    start = {n: p.clone() for n, p in model.state_dict().items()}
    initial = InitialState(optimizer)
    assert all(torch.equal(p, start[n]) for n, p in model.state_dict().items())
    train()
    places = [v.data_ptr() for s in optimizer.state.values() for v in s.values()]
    initial.restore()
    fresh_model, fresh, _ = trained(OPTIMIZERS[name])
    fresh_model.load_state_dict(model.state_dict())
    torch.manual_seed(9)
    _train(model, optimizer, 2)
    torch.manual_seed(9)
    _train(fresh_model, fresh, 2)
    for ours, theirs in zip(model.parameters(), fresh_model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert places == [v.data_ptr() for s in optimizer.state.values() for v in s.values()]


def test_averaged_state_is_what_has_the_shape_of_its_parameter():
    model, optimizer, _ = trained(OPTIMIZERS["adamw"])
    gradients = [p.grad for p in model.parameters()]
    found = averaged_state(model, optimizer)
    assert set(found) == {
        f"{name}/{key}" for name in ("weight", "bias") for key in ("exp_avg", "exp_avg_sq")
    }
    assert [p.grad for p in model.parameters()] == gradients
    assert not any(value.any() for value in found.values())
    assert all(state["step"] == 0 for state in optimizer.state.values())


def test_a_state_that_does_not_start_as_one_number_cannot_be_reset():
    _, optimizer, train = trained(OPTIMIZERS["adamw"])
    train()
    with pytest.raises(ConfigError, match="'exp_avg' does not start as one number"):
        InitialState(optimizer)
