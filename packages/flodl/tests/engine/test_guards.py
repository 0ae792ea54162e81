import functools
from collections import OrderedDict

import pytest
import torch
from torch import nn

from flodl.engine.effects import SideEffects
from flodl.engine.guards import CapturedState
from flodl.engine.observation import Observer
from flodl.nn import GradScaler

FACTOR = {"value": 1.0}
LIMIT = 3


def uses_globals(model, batch):
    return model(batch).sum() * FACTOR["value"] * min(LIMIT, 4)


class Settings:
    def __init__(self):
        self.alpha = 1.0


def captured(step_fn=uses_globals, model=None, scaler=None):
    model = model or nn.Sequential(
        OrderedDict(
            first=nn.Linear(2, 2),
            norm=nn.BatchNorm1d(2),
            drop=nn.Dropout(0.5),
            last=nn.Linear(2, 1),
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = CapturedState(step_fn, model, optimizer, scaler, watches_groups=True)
    assert state.changed() is None
    return state, model, optimizer


CHANGES = {
    "a parameter or buffer has other memory": [
        lambda model, _: setattr(model.first.weight, "data", torch.ones(2, 2)),
    ],
    "parameters of module 'first' (Linear): weight": [
        lambda model, _: setattr(model.first, "weight", nn.Parameter(torch.ones(2, 2))),
    ],
    "buffers of module 'norm' (BatchNorm1d): running_mean": [
        lambda model, _: setattr(model.norm, "running_mean", torch.ones(2)),
    ],
    "a parameter was frozen or thawed": [lambda model, _: model.last.requires_grad_(False)],
    "an attribute of module 'drop' (Dropout): training": [lambda model, _: model.drop.eval()],
    "an attribute of module 'drop' (Dropout): p": [lambda model, _: setattr(model.drop, "p", 0.1)],
    "an attribute of module 'first' (Linear): one was added": [
        lambda model, _: setattr(model.first, "extra", 1)
    ],
    "a setting of the optimizer's group 0: weight_decay": [
        lambda _, optimizer: optimizer.param_groups[0].update(weight_decay=0.5)
    ],
    "forward_hooks of module 'first' (Linear)": [
        lambda model, _: model.first.register_forward_hook(print)
    ],
    "a hook was added": [
        lambda model, _: model.first.weight.register_hook(print),
        lambda model, _: model.first.weight.register_post_accumulate_grad_hook(print),
    ],
    "modules of the module Sequential: last": [
        lambda model, _: setattr(model, "last", nn.Linear(2, 1))
    ],
    "the optimizer's groups": [
        lambda _, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    ],
}


@pytest.mark.parametrize(
    ("words", "change"),
    [(words, change) for words in CHANGES for change in CHANGES[words]],
    ids=range(sum(map(len, CHANGES.values()))),
)
def test_a_change_is_noticed_and_named(words, change):
    state, model, optimizer = captured()
    change(model, optimizer)
    assert words in state.changed()


def test_values_written_in_place_are_no_change():
    state, model, optimizer = captured()
    with torch.no_grad():
        model.first.weight.fill_(3)
    model.load_state_dict(model.state_dict())
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    assert state.changed() is None


def test_globals_closures_and_objects_of_the_step_function_are_watched(monkeypatch):
    state, _, _ = captured()
    monkeypatch.setitem(FACTOR, "value", 2.0)
    assert "'FACTOR'" in state.changed()
    monkeypatch.undo()
    assert state.changed() is None
    monkeypatch.setitem(globals(), "LIMIT", 2)
    assert "'LIMIT'" in state.changed()

    settings, weight = Settings(), [1.0]

    def closes_over(model, batch):
        return settings.alpha * weight[0]

    state, _, _ = captured(closes_over)
    settings.alpha = 2.0
    assert "'settings'" in state.changed()
    state, _, _ = captured(closes_over)
    weight.append(2.0)
    assert "'weight'" in state.changed()
    state, _, _ = captured(functools.partial(closes_over, batch=weight))
    weight.append(3.0)
    assert state.changed() is not None


def test_a_teacher_in_a_closure_is_watched():
    teacher = nn.Linear(2, 2)
    state, _, _ = captured(lambda model, batch: teacher(batch))
    teacher.eval()
    assert "Linear: training" in state.changed() or "(Linear)" in state.changed()


def test_a_scaler_is_watched_but_not_its_bookkeeping():
    scaler = GradScaler(device="cpu")
    state, _, _ = captured(scaler=scaler)
    scaler.set_growth_factor(3.0)
    assert "the gradient scaler: _growth_factor" in state.changed()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.seen = []
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        return x


SEEN = []


def appends(model, batch):
    SEEN.append(1)


EFFECTS = {
    "model.calls": lambda model: setattr(model, "calls", model.calls + 1),
    "model.seen.len()": lambda model: model.seen.append(1),
    "model.mean": lambda model: setattr(model, "mean", model.mean + 1),
    "'SEEN'": lambda model: SEEN.append(1),
}


@pytest.mark.parametrize("label", EFFECTS)
def test_what_a_step_changes_in_python_is_found(label):
    model = Counting()
    effects = SideEffects(appends, model, torch.device("cuda"))
    assert effects.found(set()) is None
    EFFECTS[label](model)
    assert label in effects.found(set())


def test_hooks_and_the_objects_they_close_over_belong_to_the_step():
    log = []
    model = Counting()
    model.register_forward_hook(lambda module, inputs, output: log.append(1))
    effects = SideEffects(lambda model, batch: model(batch), model, torch.device("cuda"))
    model(torch.ones(1))
    assert "'log'" in effects.found(set())


def test_an_observer_finds_tensors_that_are_set_anew():
    model = Counting()
    observer = Observer(model)
    model.last = torch.ones(1)
    model.mean = torch.ones(2)
    found = {item.key: item for item in observer.found()}
    assert found.keys() == {"last", "mean"}
    model.last = None
    found["last"].show()
    assert torch.equal(model.last, torch.ones(1))


def test_a_look_at_nothing_new_launches_nothing_and_finds_nothing():
    state, model, _ = captured()
    for _ in range(3):
        assert state.changed() is None
    model.drop.p = float("0.5")  # an equal number in another object
    assert state.changed() is None
    assert state.changed() is None
    model.drop.p = 1
    assert "p" in state.changed()


def test_arrays_and_sets_that_the_step_uses_are_watched():
    import numpy as np

    weights, chosen = np.ones(3), {1, 2}

    def step(model, batch):
        return model(batch).sum() * weights[0] * len(chosen)

    state, _, _ = captured(step)
    weights[0] = 2.0
    assert "'weights'" in state.changed()
    state, _, _ = captured(step)
    chosen.add(3)
    assert "'chosen'" in state.changed()


def test_the_newer_switches_of_torch_can_be_read_too():
    state, _, _ = captured()
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert "a switch of torch" in state.changed()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert state.changed() is None
