"""What a step or an optimizer changes in Python itself, so that a replay would go wrong."""

import contextvars
import itertools
import multiprocessing

import numpy as np
import pytest
import torch
from torch import nn

FACTOR = 1.0
LONG = [1.0] * 1000
VARIABLE = contextvars.ContextVar("variable", default=1.0)
SHARED = multiprocessing.Value("d", 1.0)
ARRAY = np.ones(30_000)
HELD = {}


class Counter:
    calls = 0


class CountsInItsClass(nn.Module):
    calls = 0

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        type(self).calls += 1
        return self.layer(x) * (1 + 0.01 * type(self).calls)


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def put_back():
    counted.calls = Counter.calls = CountsInItsClass.calls = 0
    LONG[900] = SHARED.value = ARRAY[29_000] = 1.0
    VARIABLE.set(1.0)
    globals().update(FACTOR=1.0)
    HELD["torch"] = torch.Generator().manual_seed(0)
    HELD["older numpy"] = np.random.RandomState(0)
    HELD.update(
        set={0},
        numpy=np.random.default_rng(0),
        cycle=itertools.cycle([1.0, 2.0, 3.0]),
        items=iter([1 + 0.1 * number for number in range(100)]),
        generator=(1 + 0.01 * number for number in itertools.count()),
    )


def both(ran, place, recipe, **options):
    runs = []
    for capture in ("off", "auto"):
        put_back()
        runs.append(ran(recipe, place.batches, 24, capture=capture, **options))
    put_back()
    return runs


def counted(model, batch):
    counted.calls += 1
    return mse(model, batch) * (1 + 0.01 * counted.calls)


def counts_in_a_class(model, batch):
    Counter.calls += 1
    return mse(model, batch) * (1 + 0.01 * Counter.calls)


def counts_in_a_long_list(model, batch):
    LONG[900] += 0.01
    return mse(model, batch) * LONG[900]


def counts_in_a_context(model, batch):
    VARIABLE.set(VARIABLE.get() + 0.01)
    return mse(model, batch) * VARIABLE.get()


def counts_in_shared_memory(model, batch):
    SHARED.value += 0.01
    return mse(model, batch) * SHARED.value


def counts_in_an_array(model, batch):
    ARRAY[29_000] += 0.01
    return mse(model, batch) * float(ARRAY[29_000])


def exchanges_the_item_of_a_set(model, batch):
    number = HELD["set"].pop()
    HELD["set"].add(number + 1)
    return mse(model, batch) * (1 + 0.01 * number)


def steps_a_schedule(model, batch):
    loss = mse(model, batch)
    HELD["schedule"].step()
    return loss


def draws_with(name):
    return lambda model, batch: mse(model, batch) * float(HELD[name].random(1)[0])


def reads_the_number_of_steps(model, batch):
    return mse(model, batch) * (1 + 0.01 * HELD["step"].global_step)


def goes_on_with(name):
    return lambda model, batch: mse(model, batch) * next(HELD[name])


EFFECTS = {
    "a function's attribute": counted,
    "a class": counts_in_a_class,
    "a long list": counts_in_a_long_list,
    "a context variable": counts_in_a_context,
    "shared memory": counts_in_shared_memory,
    "a NumPy array": counts_in_an_array,
    "a set of the same length": exchanges_the_item_of_a_set,
    "a schedule": steps_a_schedule,
    "a generator of NumPy": draws_with("numpy"),
    "an older generator of NumPy": draws_with("older numpy"),
    "a cycle": goes_on_with("cycle"),
    "the iterator of a list": goes_on_with("items"),
    "a generator": goes_on_with("generator"),
    "the class of the model": mse,
    "the number of steps taken": reads_the_number_of_steps,
}


def hold(step):
    HELD["step"] = step
    HELD["schedule"] = torch.optim.lr_scheduler.ExponentialLR(step.optimizer, 0.9)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("name", EFFECTS)
def test_what_a_step_changes_itself_keeps_it_eager(ran, same, place, name, verify):
    def recipe():
        kind = CountsInItsClass if name == "the class of the model" else nn.Linear
        model = kind(8, 4).to(place.device)
        return model, place.optimizer(model.parameters(), 0.02), EFFECTS[name]

    def between(step, index):
        if index == 0:
            hold(step)

    eager, captured = both(ran, place, recipe, between=between, verify=verify)
    same(eager, captured)
    assert captured.step.mode == "eager"
    assert captured.step.reason.code in ("hook_side_effect", "baked_scalar")


@pytest.mark.parametrize("accumulate", [1, 4])
def test_an_optimizer_that_counts_in_python_steps_outside_the_graph(ran, same, place, accumulate):
    class Counting(place.optimizer):
        calls = 0

        @torch.no_grad()
        def step(self, closure=None):
            self.calls += 1
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(1 + 0.01 * self.calls)
            return super().step(closure)

    def recipe():
        model = nn.Linear(8, 4).to(place.device)
        return model, Counting(model.parameters(), 0.02), mse

    options = {"verify": "off", "accumulate": accumulate}
    eager, captured = both(ran, place, recipe, **options)
    same(eager, captured)
    assert captured.step.mode == "captured-fwd-bwd"
    assert "calls" in captured.step.reason.message


def test_what_an_optimizers_own_code_reads_is_watched(ran, same, place):
    class Damped(place.optimizer):
        damping = 1.0

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(self.damping * FACTOR)
            return super().step(closure)

    def recipe():
        model = nn.Linear(8, 4).to(place.device)
        return model, Damped(model.parameters(), 0.02), mse

    def between(step, index):
        if index == 10:
            step.optimizer.damping = 0.5
        if index == 16:
            globals().update(FACTOR=0.5)

    eager, captured = both(ran, place, recipe, between=between)
    same(eager, captured)
    assert captured.step.mode == "captured"
    assert len(captured.step.stats().recaptures) == 2


def draws_beside_a_compiled_model(model, batch):
    return mse(model, batch) * torch.rand((), generator=HELD["torch"])


def scaled_by_its_index(model, batch):
    return mse(model, batch) * (1 + batch.index)


def counts_beside_a_compiled_model(model, batch):
    Counter.calls += 1
    return mse(model, batch) * (1 + 0.01 * Counter.calls)


@pytest.mark.parametrize(
    ("step_fn", "words"),
    [
        (scaled_by_its_index, "batch.index"),
        (counts_beside_a_compiled_model, "'Counter'"),
        (draws_beside_a_compiled_model, "'HELD'"),
    ],
)
def test_steps_around_a_compiled_model_are_looked_at_too(ran, same, place, step_fn, words):
    def recipe():
        model = nn.Linear(8, 4).to(place.device)
        return model, place.optimizer(model.parameters(), 0.02), step_fn

    options = {"compile": {"backend": "eager"}, "verify": "off"}
    eager, captured = both(ran, place, recipe, **options)
    same(eager, captured)
    assert captured.step.mode == "eager"
    assert words in captured.step.reason.message
