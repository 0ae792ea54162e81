"""Values that a step reaches by long ways, changed after the capture."""

import array
import collections
import contextvars
import functools
import importlib
import multiprocessing
import os
import sys
import threading
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from flodl.engine.guards import CapturedState

FACTOR = 1.0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.scale = torch.tensor(1.0)
        self.unregistered = [nn.Dropout(0.0)]
        self.register_buffer("gains", torch.ones(4))
        inner = types.SimpleNamespace(value=1.0)
        for _ in range(5):
            inner = types.SimpleNamespace(inner=inner)
        self.config = inner

    def forward(self, x):
        return self.unregistered[0](self.layer(x)) * self.scale * self.gains.sum()


class Deep(Scaled):
    def forward(self, x):
        return self.layer(x) * self.config.inner.inner.inner.inner.inner.value


class Setting:
    alpha = 1.0


class Multiply(torch.autograd.Function):
    alpha = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * FACTOR * Multiply.alpha

    @staticmethod
    def backward(ctx, gradient):
        return gradient * BACKWARD


class Loss:
    def __init__(self, power):
        self.power = power

    def __call__(self, difference):
        return (difference * FACTOR).abs().pow(self.power).mean()


class TriplesMeans(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 3 if getattr(func, "__name__", "") == "mean" else result


def helper(x, factor=1.0):
    return x * FACTOR * factor


def other_helper(x, factor=1.0):
    return x * factor * 3


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def with_attribute(model, batch):
    return mse(model, batch) * with_attribute.alpha


def importing(model, batch):
    from a_settings_module import inner

    return mse(model, batch) * inner.VALUE


BACKWARD = 1.0
SETTING = Setting()
LONG, LARGE = [1.0] * 1000, dict.fromkeys(range(1000), 1.0)
PARTIAL, MULTIPLY = functools.partial(helper), functools.partial(torch.mul, other=1.0)
VARIABLE = contextvars.ContextVar("variable", default=1.0)
LOCAL = threading.local()
OWN_DICT, CHAIN = collections.UserDict(a=1.0), collections.ChainMap({"a": 1.0})
NUMBERS, BYTES = array.array("d", [1.0]), bytearray(b"\x01")
SHARED = multiprocessing.Value("d", 1.0)
WEIGHT = torch.ones(4)
ARRAY = np.ones(30_000)
PLACES = {"helper": helper.__code__, "relu": functional.relu}


@pytest.fixture
def put_back(monkeypatch):
    """Return a function that gives every value its first one again."""
    module = types.ModuleType("a_settings_module")
    module.inner = types.ModuleType("a_settings_module.inner")
    monkeypatch.setitem(sys.modules, "a_settings_module", module)
    monkeypatch.setitem(sys.modules, "a_settings_module.inner", module.inner)

    def reset():
        vars(SETTING).clear()
        globals().update(FACTOR=1.0, BACKWARD=1.0)
        globals().pop("abs", None)
        module.inner.VALUE = LONG[700] = LARGE[700] = LOCAL.value = NUMBERS[0] = 1.0
        OWN_DICT["a"] = CHAIN["a"] = SHARED.value = Multiply.alpha = ARRAY[29_000] = 1.0
        MULTIPLY.keywords["other"], BYTES[0], with_attribute.alpha = 1.0, 1, 1.0
        helper.__code__, helper.__defaults__, functional.relu = (
            PLACES["helper"],
            (1.0,),
            PLACES["relu"],
        )
        VARIABLE.set(1.0)
        WEIGHT.data = torch.ones(4)
        os.environ.pop("FLODL_TEST_FACTOR", None)

    reset()
    yield reset
    reset()


def scaled_by(read):
    """Return a step function whose loss is multiplied by what ``read`` gives."""
    return lambda model, batch: mse(model, batch) * read()


def to(holder, name, value=3.0):
    return lambda step: setattr(holder, name, value)


def at(holder, key, value=3.0):
    return lambda step: holder.__setitem__(key, value)


def globally(name, value=3.0):
    return lambda step: globals().update({name: value})


def zero_momentum(step):
    for state in step.optimizer.state.values():
        for value in state.values():
            value.data = torch.zeros_like(value)


def narrow(step):
    step.model.gains.data = step.model.gains.data[:2]


def from_environment():
    return float(os.environ.get("FLODL_TEST_FACTOR", "1"))


def imported_by_name(model, batch):
    return mse(model, batch) * importlib.import_module("a_settings_module.inner").VALUE


CHANGES = {
    "module imported by its name": (
        imported_by_name,
        lambda step: setattr(sys.modules["a_settings_module.inner"], "VALUE", 3.0),
    ),
    "attribute that hides the class's": (
        scaled_by(lambda: SETTING.alpha),
        to(SETTING, "alpha"),
    ),
    "module inside a module": (
        importing,
        lambda step: setattr(sys.modules["a_settings_module.inner"], "VALUE", 3.0),
    ),
    "entry of a long list": (scaled_by(lambda: LONG[700]), at(LONG, 700)),
    "entry of a large dictionary": (scaled_by(lambda: LARGE[700]), at(LARGE, 700)),
    "global of an autograd function": (
        lambda m, b: Multiply.apply(mse(m, b)),
        globally("FACTOR"),
    ),
    "global of its backward": (lambda m, b: Multiply.apply(mse(m, b)), globally("BACKWARD")),
    "its class attribute": (lambda m, b: Multiply.apply(mse(m, b)), to(Multiply, "alpha")),
    "global of an object made in the step": (
        lambda m, b: Loss(2)(m(b[0]) - b[1]),
        globally("FACTOR"),
    ),
    "global of a partial function": (lambda m, b: PARTIAL(mse(m, b)), globally("FACTOR")),
    "keyword of a partial function": (
        lambda m, b: MULTIPLY(mse(m, b)),
        at(MULTIPLY.keywords, "other"),
    ),
    "context variable": (scaled_by(VARIABLE.get), lambda step: VARIABLE.set(3.0)),
    "value of the thread": (scaled_by(lambda: LOCAL.value), to(LOCAL, "value")),
    "dictionary of Python code": (scaled_by(lambda: OWN_DICT["a"]), at(OWN_DICT, "a")),
    "chain of dictionaries": (scaled_by(lambda: CHAIN["a"]), at(CHAIN, "a")),
    "array": (scaled_by(lambda: NUMBERS[0]), at(NUMBERS, 0)),
    "bytes": (scaled_by(lambda: BYTES[0]), at(BYTES, 0, 3)),
    "memory shared by processes": (scaled_by(lambda: SHARED.value), to(SHARED, "value")),
    "large NumPy array": (scaled_by(lambda: float(ARRAY[29_000])), at(ARRAY, 29_000)),
    "memory of a tensor in a variable": (
        lambda m, b: (mse(m, b) * WEIGHT).sum(),
        lambda step: setattr(WEIGHT, "data", torch.full((4,), 3.0)),
    ),
    "memory of a tensor of a module": (
        mse,
        lambda step: setattr(step.model.scale, "data", torch.tensor(3.0)),
    ),
    "shape of a buffer": (mse, narrow),
    "module that is not registered": (
        mse,
        lambda step: setattr(step.model.unregistered[0], "p", 0.5),
    ),
    "memory of the optimizer's state": (mse, zero_momentum),
    "environment": (
        scaled_by(from_environment),
        lambda step: os.environ.update(FLODL_TEST_FACTOR="3"),
    ),
    "attribute of a function": (with_attribute, to(with_attribute, "alpha")),
    "default of a function": (
        lambda m, b: helper(mse(m, b)),
        to(helper, "__defaults__", (3.0,)),
    ),
    "code of a function": (
        lambda m, b: helper(mse(m, b)),
        to(helper, "__code__", other_helper.__code__),
    ),
    "function of torch": (
        lambda m, b: functional.relu(m(b[0])).sum(),
        to(functional, "relu", lambda x: x * 3),
    ),
    "variable that hides a builtin": (
        scaled_by(lambda: abs(-1.0)),
        globally("abs", lambda x: 3.0),
    ),
    "method of the optimizer": (
        mse,
        lambda step: setattr(step.optimizer, "step", lambda closure=None: None),
    ),
}


def both(ran, place, put_back, recipe, *, between=None, verify="first"):
    runs = []
    for capture in ("off", "auto"):
        put_back()
        options = {"capture": capture, "between": between, "verify": verify}
        runs.append(ran(recipe, place.batches, 24, **options))
    put_back()
    return runs


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_counts_from_the_next_step(ran, same, place, put_back, name):
    if place.device.type == "cuda" and ("tensor" in name or "memory of" in name):
        pytest.skip("puts a tensor of the host in place of one of the GPU")
    step_fn, change = CHANGES[name]

    def recipe():
        model = Scaled()
        model.scale = model.scale.to(place.device)
        model = model.to(place.device)
        return model, place.optimizer(model.parameters(), 0.02), step_fn

    def between(step, index):
        if index == 12:
            change(step)

    eager, captured = both(ran, place, put_back, recipe, between=between)
    same(eager, captured)
    assert captured.step.stats().captured >= 5
    assert eager.losses[11] != eager.losses[13]


def test_deep_attributes_are_watched():
    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    state = CapturedState(mse, model, optimizer, None, watches_groups=True)
    model.config.inner.inner.inner.inner.inner.value = 2.0
    assert "'config' of the module Deep: value" in state.changed()


@pytest.mark.parametrize(
    "context",
    [
        lambda: torch.device("meta"),
        TriplesMeans,
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x * 0.5, lambda x: x),
        lambda: torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.CUDNN_ATTENTION]),
    ],
    ids=["device", "function mode", "saved tensors", "attention"],
)
def test_switches_that_change_what_operations_do_are_watched(context):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    state = CapturedState(mse, model, optimizer, None, watches_groups=True)
    with context():
        assert state.changed() == "a switch of torch"
    assert state.changed() is None


def test_a_change_before_another_shape_is_recorded_reaches_the_shape_before(
    ran, same, place, put_back
):
    def recipe():
        model = nn.Linear(8, 4).to(place.device)
        return model, place.optimizer(model.parameters(), 0.02), scaled_by(lambda: FACTOR)

    def between(step, index):
        if index == 10:
            globals().update(FACTOR=3.0)

    def batches(index):
        return place.batches(index, rows=8 if 10 <= index < 17 else 16)

    runs = []
    for capture in ("off", "auto"):
        put_back()
        runs.append(ran(recipe, batches, 24, capture=capture, between=between, partial="capture"))
    same(*runs)
    assert len(runs[1].step.stats().signatures) == 2
    assert runs[1].step.mode == "captured"
