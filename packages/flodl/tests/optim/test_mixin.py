import copy
import inspect
import pickle
import weakref

import pytest
import torch
from torch import nn

from flodl import optim
from flodl.optim import Adam, AdamW


def test_each_optimizer_is_a_torch_optimizer_with_torchs_arguments(kind):
    torch_class = getattr(torch.optim, kind.__name__)
    assert issubclass(kind, torch_class)
    assert inspect.signature(kind) == inspect.signature(torch_class)
    assert kind.state_kind == "optimizer"
    assert kind.state_class == kind.__name__


def test_defaults_are_torchs(kind, weights):
    torch_class = getattr(torch.optim, kind.__name__)
    assert kind(weights[0]).defaults == torch_class(weights[0]).defaults


def test_a_third_number_to_adamw_says_how_to_write_it(weights):
    with pytest.raises(TypeError, match=r"weight_decay=0\.01"):
        AdamW(weights[0], 1e-3, 0.01)
    assert AdamW(weights[0], 1e-3, (0.9, 0.99)).defaults["betas"] == (0.9, 0.99)


@pytest.mark.parametrize("source", ["module", "pairs", "generator", "tensor", "groups"])
def test_parameters_come_in_many_forms(source, any_kind):
    model = nn.Linear(3, 2)
    given, names = {
        "module": (model, ("weight", "bias")),
        "pairs": (list(model.named_parameters()), ("weight", "bias")),
        "generator": (model.parameters(), ("0", "1")),
        "tensor": (model.weight, ("0",)),
        "groups": ([{"params": model, "lr": 0.5}], ("weight", "bias")),
    }[source]
    optimizer = any_kind(given, lr=0.25)
    (group,) = optimizer.groups
    assert group.names == names
    assert group.lr == optimizer.lr == (0.5 if source == "groups" else 0.25)


def test_no_parameters_are_legal_and_a_step_does_nothing(any_kind):
    optimizer = any_kind([])
    optimizer.step()
    optimizer.zero_grad()
    assert optimizer.groups[0].names == ()
    assert optimizer.step(lambda: 3.0) == 3.0


def test_groups_are_built_one_by_one(any_kind):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = (
        any_kind.with_groups(eps=1e-6, weight_decay=0.1)
        if any_kind is not optim.SGD
        else any_kind.with_groups(momentum=0.5, weight_decay=0.1)
    )
    optimizer = optimizer.group(model[0], 0.1).group(model[1], 0.2, weight_decay=0.0).build()
    assert [group.lr for group in optimizer.groups] == [0.1, 0.2]
    assert [group.index for group in optimizer.groups] == [0, 1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


def test_a_builder_without_groups_is_refused(any_kind):
    with pytest.raises(ValueError, match="no group"):
        any_kind.with_groups().build()


def test_a_parameter_in_two_groups_is_named():
    model = nn.Linear(2, 2)
    builder = Adam.with_groups().group(model, 0.1)
    with pytest.raises(ValueError, match="'bias' of group 1 is in group 0"):
        builder.group([("bias", model.bias)], 0.2).build()
    with pytest.raises(ValueError, match="'weight' of group 1 is in group 0"):
        Adam.with_groups().group(model, 0.1).group([model.weight], 0.2).build()
    with pytest.raises(ValueError, match=r"parameter 0 of shape \(2, 2\) of group 1"):
        Adam([{"params": [model.weight]}, {"params": [model.weight]}])


def test_a_setting_that_does_not_exist_is_refused_with_the_one_meant(weights):
    with pytest.raises(TypeError, match="did you mean 'weight_decay'"):
        Adam.with_groups(weigth_decay=0.1)
    with pytest.raises(TypeError, match="no setting 'momentum'"):
        Adam.with_groups().group(weights[0], 0.1, momentum=0.9)


def test_views_do_not_change_the_optimizer(weights):
    view = Adam(weights[0]).groups[0]
    with pytest.raises(AttributeError):
        view.lr = 3.0


def test_each_step_hook_runs_once_even_when_torchs_own_class_was_used(any_kind, weights):
    # torch wraps the `step` of each class that it constructs.
    parameters, backward = weights
    plain = getattr(torch.optim, any_kind.state_class)
    plain(parameters)
    optimizer = any_kind(parameters)
    plain(parameters)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    backward(0)
    optimizer.step()
    optimizer.step()
    assert calls == ["before", "after"] * 2


@pytest.mark.parametrize("way", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_go_on_as_the_original_does(way, any_kind, weights):
    parameters, backward = weights
    optimizer = any_kind(parameters, lr=0.1)
    backward(0)
    optimizer.step()
    other = way(optimizer)
    copies = [p for group in other.param_groups for p in group["params"]]
    for target, used in ((parameters, optimizer), (copies, other)):
        backward(1, target)
        used.step()
    assert all(torch.equal(a, b) for a, b in zip(parameters, copies, strict=True))
    assert other.implementation == optimizer.implementation


def test_torchs_own_schedulers_accept_them(any_kind, weights):
    optimizer = any_kind(weights[0], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    weights[1](0)
    optimizer.step()
    scheduler.step()
    assert optimizer.lr == 0.05


def test_a_state_dict_moves_between_torch_and_flodl(kind, weights):
    parameters, backward = weights
    plain = getattr(torch.optim, kind.__name__)(parameters, lr=0.1)
    backward(0)
    plain.step()
    optimizer = kind(parameters, lr=0.3)
    optimizer.load_state_dict(copy.deepcopy(plain.state_dict()))
    assert optimizer.lr == 0.1
    before = [p.detach().clone() for p in parameters]
    backward(1)
    plain.step()
    expected = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p, value in zip(parameters, before, strict=True):
            p.copy_(value)
    optimizer.step()
    for value, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(value.detach(), wanted, rtol=1e-6, atol=1e-7)


def test_loading_keeps_how_this_machine_computes_and_the_rate_tensor(weights):
    parameters, backward = weights
    saved = torch.optim.Adam(parameters, lr=0.1, fused=True)
    backward(0)
    saved.step()
    rate = torch.tensor(0.5)
    optimizer = Adam(parameters, lr=rate, foreach=False)
    optimizer.load_state_dict(saved.state_dict())
    group = optimizer.param_groups[0]
    assert (group["fused"], group["foreach"]) == (None, False)
    assert group["lr"] is rate
    assert rate == torch.tensor(0.1)
    optimizer.step()


def test_dead_optimizers_are_not_kept(weights):
    optimizer = Adam(weights[0])
    weights[1](0)
    optimizer.step()
    assert optim.optimizers_with_state_for(weights[0]) == [optimizer]
    gone = weakref.ref(optimizer)
    del optimizer
    import gc

    gc.collect()
    assert gone() is None
    assert optim.optimizers_with_state_for(weights[0]) == []


def test_a_group_added_later_is_resolved_too(weights):
    parameters, backward = weights
    optimizer = Adam([("a", parameters[0])])
    backward(0)
    optimizer.step()
    optimizer.add_param_group({"params": [("b", parameters[1])], "lr": 0.5})
    optimizer.step()
    assert [group.names for group in optimizer.groups] == [("a",), ("b",)]
    assert optimizer.state[parameters[1]]["step"] == 1
