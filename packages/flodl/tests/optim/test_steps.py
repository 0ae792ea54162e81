"""Every optimizer against its formula, written out in float64."""

import math

import numpy as np
import pytest
import torch

from flodl import optim
from flodl.optim.implementation import has_fused_kernel

STEPS = 8


@pytest.fixture(autouse=True)
def float64_scalars():
    """torch keeps step counters and NAdam's product in the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Formula:
    """One parameter's update; ``s`` holds its state between steps."""

    def __init__(self, **settings):
        self.h = settings
        self.s = {}

    def average(self, name, value, beta):
        self.s[name] = beta * self.s.get(name, 0.0) + (1 - beta) * value
        return self.s[name]

    def step(self, p, g, t, lr):
        h = self.h
        if h.get("maximize"):
            g = -g
        if h.get("weight_decay") and not h.get("decoupled"):
            g = g + h["weight_decay"] * p
        if h.get("decoupled"):
            p = p * (1 - lr * h["weight_decay"])
        return p - self.update(g, t, lr)


class SGD(Formula):
    def update(self, g, t, lr):
        momentum = self.h.get("momentum", 0.0)
        if not momentum:
            return lr * g
        damped = (1 - self.h.get("dampening", 0.0)) * g
        self.s["b"] = momentum * self.s["b"] + damped if "b" in self.s else g
        return lr * (g + momentum * self.s["b"] if self.h.get("nesterov") else self.s["b"])


class Adam(Formula):
    def update(self, g, t, lr):
        m, v = self.average("m", g, 0.9), self.average("v", g * g, 0.99)
        v_hat = v / (1 - 0.99**t)
        if self.h.get("amsgrad"):
            self.s["max"] = np.maximum(self.s.get("max", 0.0), v)
            v_hat = self.s["max"] / (1 - 0.99**t)
        return lr * (m / (1 - 0.9**t)) / (np.sqrt(v_hat) + 1e-8)


class RMSprop(Formula):
    def update(self, g, t, lr):
        v = self.average("v", g * g, 0.9)
        if self.h.get("centered"):
            v = v - self.average("mean", g, 0.9) ** 2
        ratio = g / (np.sqrt(v) + 1e-8)
        momentum = self.h.get("momentum", 0.0)
        self.s["b"] = momentum * self.s.get("b", 0.0) + ratio
        return lr * (self.s["b"] if momentum else ratio)


class Adagrad(Formula):
    def update(self, g, t, lr):
        start = self.h.get("initial_accumulator_value", 0.0)
        self.s["sum"] = self.s.get("sum", start) + g * g
        rate = lr / (1 + (t - 1) * self.h.get("lr_decay", 0.0))
        return rate * g / (np.sqrt(self.s["sum"]) + 1e-10)


class RAdam(Formula):
    def update(self, g, t, lr):
        beta = 0.9
        m, v = self.average("m", g, 0.8), self.average("v", g * g, beta)
        m_hat = m / (1 - 0.8**t)
        limit = 2 / (1 - beta) - 1
        length = limit - 2 * t * beta**t / (1 - beta**t)
        if length <= 5:
            return lr * m_hat
        above = (length - 4) * (length - 2) * limit
        rectification = math.sqrt(above / ((limit - 4) * (limit - 2) * length))
        return lr * m_hat * rectification * math.sqrt(1 - beta**t) / (np.sqrt(v) + 1e-8)


class NAdam(Formula):
    def update(self, g, t, lr):
        decay = self.h.get("momentum_decay", 4e-3)
        m, v = self.average("m", g, 0.9), self.average("v", g * g, 0.99)
        mu, mu_next = (0.9 * (1 - 0.5 * 0.96 ** (k * decay)) for k in (t, t + 1))
        product = self.s["product"] = self.s.get("product", 1.0) * mu
        denominator = np.sqrt(v / (1 - 0.99**t)) + 1e-8
        now = lr * (1 - mu) / (1 - product) * g / denominator
        return now + lr * mu_next / (1 - product * mu_next) * m / denominator


FORMULAS = {
    "SGD": (SGD, {}),
    "Adam": (Adam, {"betas": (0.9, 0.99)}),
    "AdamW": (Adam, {"betas": (0.9, 0.99)}),
    "RMSprop": (RMSprop, {"alpha": 0.9}),
    "Adagrad": (Adagrad, {}),
    "CapturableAdagrad": (Adagrad, {}),
    "RAdam": (RAdam, {"betas": (0.8, 0.9)}),
    "NAdam": (NAdam, {"betas": (0.9, 0.99)}),
}
VARIANTS = [
    *[(name, {"weight_decay": decay}) for name in FORMULAS for decay in (0.0, 0.1)],
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"maximize": True}),
    ("Adam", {"amsgrad": True}),
    ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("CapturableAdagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("CapturableAdagrad", {"maximize": True, "weight_decay": 0.1}),
    ("NAdam", {"momentum_decay": 0.0}),
]


@pytest.mark.parametrize(
    ("name", "settings"), VARIANTS, ids=[f"{name}-{settings}" for name, settings in VARIANTS]
)
def test_steps_are_those_of_the_formula_in_two_groups(name, settings, weights, device):
    parameters, backward = weights
    parameters = [torch.nn.Parameter(p.double()) for p in parameters]
    formula, fixed = FORMULAS[name]
    kind = getattr(optim, name)
    optimizer = (
        kind.with_groups(**fixed, **settings)
        .group([parameters[0]], 0.1)
        .group([parameters[1]], 0.01)
        .build()
    )
    expected = [p.detach().cpu().numpy().copy() for p in parameters]
    formulas = [formula(**settings, decoupled=name == "AdamW") for _ in parameters]
    for t in range(STEPS):
        backward(t, parameters)
        gradients = [p.grad.cpu().numpy().copy() for p in parameters]
        optimizer.step()
        for index, lr in enumerate((0.1, 0.01)):
            expected[index] = formulas[index].step(expected[index], gradients[index], t + 1, lr)
            difference = np.abs(parameters[index].detach().cpu().numpy() - expected[index])
            assert difference.max() <= 1e-12, f"step {t}, group {index}"


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}], ids=["plain", "decay"])
@pytest.mark.parametrize("name", FORMULAS)
def test_all_implementations_agree(name, settings, weights):
    parameters, backward = weights
    results = {}
    kind = getattr(optim, name)
    slow = {"foreach": False}
    if name in ("SGD", "Adam", "AdamW", "Adagrad"):
        slow = {"foreach": False, "fused": False}
    flags = [slow, {"foreach": True}]
    on_gpu = parameters[0].device.type == "cuda"
    if "fused" in slow and (not on_gpu or has_fused_kernel(kind(parameters))):
        flags.append({"fused": True})
    if name == "CapturableAdagrad":
        flags = [{}]
    for flag in flags:
        copies = [torch.nn.Parameter(p.detach().double()) for p in parameters]
        optimizer = kind(copies, lr=0.05, **settings, **flag)
        for t in range(3):
            backward(t, copies)
            optimizer.step()
        results[optimizer.implementation] = copies
    assert len(results) == len(flags)
    for copies in results.values():
        for value, reference in zip(copies, next(iter(results.values())), strict=True):
            torch.testing.assert_close(value, reference, rtol=0, atol=1e-12)


def test_the_capturable_adagrad_is_torchs_bit_for_bit(weights):
    parameters, backward = weights
    ours = [torch.nn.Parameter(p.detach().float()) for p in parameters]
    theirs = [torch.nn.Parameter(p.detach().float()) for p in parameters]
    first = optim.CapturableAdagrad(ours, lr=0.05, weight_decay=0.01)
    second = torch.optim.Adagrad(theirs, lr=0.05, weight_decay=0.01, foreach=True)
    for t in range(10):
        backward(t, ours)
        backward(t, theirs)
        first.step()
        second.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)
        assert first.state[mine].keys() == second.state[other].keys()
        assert torch.equal(first.state[mine]["sum"], second.state[other]["sum"])
        assert first.state[mine]["step"] == second.state[other]["step"] == 10


def test_the_capturable_adagrad_handles_complex_parameters():
    ours = torch.nn.Parameter(torch.tensor([1 + 2j, 3 - 1j]))
    theirs = torch.nn.Parameter(ours.detach().clone())
    first = optim.CapturableAdagrad([ours], lr=0.1)
    second = torch.optim.Adagrad([theirs], lr=0.1)
    for _ in range(3):
        ours.grad = torch.tensor([0.5 + 1j, -1 + 0.25j])
        theirs.grad = ours.grad.clone()
        first.step()
        second.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_the_capturable_adagrad_refuses_sparse_gradients():
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="no sparse step"):
        optim.CapturableAdagrad(table.parameters()).step()


@pytest.mark.parametrize(
    "settings",
    [{"lr": -1.0}, {"eps": -1.0}, {"lr_decay": math.nan}, {"lr": torch.ones(2)}],
    ids=str,
)
def test_the_capturable_adagrad_refuses_impossible_settings(settings, weights):
    with pytest.raises(ValueError, match=next(iter(settings))):
        optim.CapturableAdagrad(weights[0], **settings)


def test_the_adagrad_update_has_the_gradient_of_its_formula():
    """The update as a function of parameter and gradient, against finite differences."""
    from flodl.optim.adagrad import adagrad_update

    def updated(parameter, gradient, total):
        p, s = parameter.clone(), total.clone()
        step = torch.tensor(1.0)
        adagrad_update(
            [p],
            [gradient],
            [s],
            [step],
            lr=0.1,
            lr_decay=0.1,
            weight_decay=0.0,
            eps=1e-3,
            maximize=False,
        )
        return p, s

    inputs = [torch.rand(3, requires_grad=True) + 0.5 for _ in range(3)]
    assert torch.autograd.gradcheck(updated, inputs, eps=1e-6, atol=1e-6)
