import copy

import pytest
import torch
from torch import nn as torch_nn

from flodl import nn
from flodl.nn import freeze, frozen_names, is_frozen, unfreeze
from flodl.optim import SGD


def backward(model):
    model(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize("form", ["module", "parameter", "list", "pairs"])
def test_every_form_freezes_and_thaws(form):
    model = torch_nn.Linear(2, 2)
    target = {
        "module": model,
        "parameter": model.weight,
        "list": list(model.parameters()),
        "pairs": list(model.named_parameters()),
    }[form]
    assert not is_frozen(target)
    freeze(target)
    assert is_frozen(target)
    assert not model.weight.requires_grad
    assert is_frozen(model) == (form != "parameter")
    assert frozen_names(model) == (["weight"] if form == "parameter" else ["weight", "bias"])
    unfreeze(target)
    assert not is_frozen(model)
    assert frozen_names(model) == []


@pytest.mark.parametrize(
    "kind", [SGD, torch.optim.SGD, torch.optim.Adam], ids=["ours", "torch SGD", "torch Adam"]
)
def test_a_step_after_freezing_changes_nothing(kind):
    model = torch_nn.Linear(2, 2)
    optimizer = kind(model.parameters(), lr=0.1)
    backward(model)
    optimizer.step()
    backward(model)
    before = copy.deepcopy(model.state_dict())
    freeze(model)
    optimizer.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    unfreeze(model)
    backward(model)
    optimizer.step()
    assert not torch.equal(model.weight, before["weight"])


def test_torch_itself_would_have_changed_it():
    model = torch_nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model)
    before = model.weight.detach().clone()
    model.requires_grad_(False)
    optimizer.step()
    assert not torch.equal(model.weight, before)


def test_the_flag_survives_a_move():
    model = torch_nn.Linear(2, 2)
    freeze(model)
    assert is_frozen(model.to(torch.float64).to("cpu"))


def test_parameters_that_cannot_have_gradients_are_left_alone():
    whole = torch_nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)
    unfreeze([whole])
    assert is_frozen(whole)
    assert is_frozen(torch_nn.ReLU())


def test_the_parameter_class_is_torchs():
    assert nn.Parameter is torch_nn.Parameter
    assert not hasattr(torch_nn.Parameter, "freeze")
