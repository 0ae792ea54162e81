"""Objects, classes and functions of the user that a step reaches on a long way."""

import builtins
import enum
import functools
import types

import pytest
import torch
from torch import nn

HELD = types.SimpleNamespace()


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


class Described:
    def __init__(self):
        self.value = 1.0

    def __get__(self, instance, owner=None):
        return self.value


class WithDescriptor:
    described = Described()


class Kind(type):
    alpha = 1.0


class OfKind(metaclass=Kind):
    pass


class Color(enum.Enum):
    RED = 1.0


class Calm:
    def factor(self):
        return 1.0


class Wild:
    def factor(self):
        return 3.0


class Heir(Calm):
    pass


class Schedule(torch.optim.lr_scheduler.LambdaLR):
    """Has no code of its own: torch's reads what its steps have set."""


class Part:
    weight = 1.0

    def __init__(self):
        self.function = None

    def apply(self, loss):
        return loss * self.weight if self.function is None else self.function(loss)


class Strategy:
    def __init__(self):
        self.parts = [Part(), Part()]

    def __call__(self, loss):
        for part in self.parts:
            loss = part.apply(loss)
        return loss


class Link:
    def __init__(self, following=None):
        self.following, self.value = following, 1.0

    def total(self):
        return self.value * (self.following.total() if self.following else 1.0)


class Hidden:
    def __init__(self):
        self.secret = 1.0

    def __float__(self):
        return self.secret


class Callback:
    def __init__(self):
        self.factor = 1.0

    def on_loss(self, loss):
        return loss * self.factor


class Manager:
    def __init__(self):
        self.callbacks = {"a": Callback()}

    def fire(self, event, loss):
        for callback in self.callbacks.values():
            loss = getattr(callback, "on_" + event)(loss)
        return loss


class Registry:
    items = {}  # noqa: RUF012 - as users write it

    @classmethod
    def get(cls, key):
        return cls.items[key]


def composed(first, second):
    return lambda loss: second(first(loss))


@functools.cache
def looked_up():
    return HELD.base


def weight_of(value):
    return 1.0


def dispatched(value):
    return HELD.dispatch(value)


def forget():
    HELD.base = 3.0
    looked_up.cache_clear()


def triple_part():
    part = Part()
    part.weight = 3.0
    HELD.strategy.parts.append(part)


def reset():
    WithDescriptor.__dict__["described"].value = Kind.alpha = Part.weight = HELD.base = 1.0
    Color.RED._value_ = 1.0
    Heir.__bases__ = (Calm,)
    HELD.color, HELD.strategy, HELD.chain = Color.RED, Strategy(), Link(Link(Link()))
    HELD.hidden, HELD.nested = [Hidden()], types.SimpleNamespace(inner={"a": [Hidden()]})
    HELD.dispatch = functools.singledispatch(weight_of)
    HELD.manager = Manager()
    HELD.composed = composed(lambda loss: loss, HELD.manager.callbacks["a"].on_loss)
    HELD.fires = functools.partial(HELD.manager.fire, "loss")
    Registry.items = {"scale": lambda loss: loss}
    counted = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    HELD.schedule = Schedule(counted, lambda epoch: 1.0 + epoch)
    builtins.sum = SUM
    looked_up.cache_clear()


SUM = builtins.sum


@pytest.fixture(autouse=True)
def put_back():
    """Give every value its first one again."""
    reset()
    yield
    reset()


def scaled_by(read):
    return lambda model, batch: mse(model, batch) * read()


CHANGES = {
    "what a descriptor gives": (
        scaled_by(lambda: WithDescriptor.described),
        lambda: setattr(WithDescriptor.__dict__["described"], "value", 3.0),
    ),
    "an attribute of a metaclass": (
        scaled_by(lambda: OfKind.alpha),
        lambda: setattr(Kind, "alpha", 3.0),
    ),
    "the value of an enumeration": (
        scaled_by(lambda: HELD.color.value),
        lambda: setattr(Color.RED, "_value_", 3.0),
    ),
    "the bases of a class": (
        scaled_by(lambda: Heir().factor()),
        lambda: setattr(Heir, "__bases__", (Wild,)),
    ),
    "what a cached function reads": (scaled_by(lambda: 1.0 * looked_up()), forget),
    "a function registered for a type": (
        scaled_by(lambda: dispatched(1)),
        lambda: HELD.dispatch.register(int, lambda value: 3.0),
    ),
    "a builtin": (
        scaled_by(lambda: sum([0.5, 0.5])),
        lambda: setattr(builtins, "sum", lambda values: 3.0),
    ),
    "what code of a base class of torch reads": (
        scaled_by(lambda: HELD.schedule.get_last_lr()[0]),
        lambda: (HELD.schedule.step(),),
    ),
    "the class of a part of a strategy": (
        lambda model, batch: HELD.strategy(mse(model, batch)),
        lambda: setattr(Part, "weight", 3.0),
    ),
    "a part of a strategy": (
        lambda model, batch: HELD.strategy(mse(model, batch)),
        lambda: setattr(HELD.strategy.parts[1], "weight", 3.0),
    ),
    "a function of a part": (
        lambda model, batch: HELD.strategy(mse(model, batch)),
        lambda: setattr(HELD.strategy.parts[1], "function", lambda loss: loss * 3),
    ),
    "another part": (lambda model, batch: HELD.strategy(mse(model, batch)), triple_part),
    "the end of a chain": (
        scaled_by(lambda: 1.0 * HELD.chain.total()),
        lambda: setattr(HELD.chain.following.following, "value", 3.0),
    ),
    "a callback that is called by a name made up": (
        lambda model, batch: HELD.manager.fire("loss", mse(model, batch)),
        lambda: setattr(HELD.manager.callbacks["a"], "factor", 3.0),
    ),
    "a callback in a partial function": (
        lambda model, batch: HELD.fires(mse(model, batch)),
        lambda: setattr(HELD.manager.callbacks["a"], "factor", 3.0),
    ),
    "a callback in a composed function": (
        lambda model, batch: HELD.composed(mse(model, batch)),
        lambda: setattr(HELD.manager.callbacks["a"], "factor", 3.0),
    ),
    "a registered function": (
        lambda model, batch: Registry.get("scale")(mse(model, batch)),
        lambda: Registry.items.update(scale=lambda loss: loss * 3),
    ),
    "an object that is a number": (
        scaled_by(lambda: float(HELD.hidden[0])),
        lambda: setattr(HELD.hidden[0], "secret", 3.0),
    ),
    "an object deep in a namespace": (
        scaled_by(lambda: float(HELD.nested.inner["a"][0])),
        lambda: setattr(HELD.nested.inner["a"][0], "secret", 3.0),
    ),
}


def both(ran, place, step_fn, change=None):
    def recipe():
        model = nn.Linear(8, 4).to(place.device)
        return model, place.optimizer(model.parameters(), 0.02), step_fn

    def between(step, index):
        if index == 12 and change is not None:
            change()

    runs = []
    for capture in ("off", "auto"):
        reset()
        runs.append(ran(recipe, place.batches, 24, capture=capture, between=between))
    return runs


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_counts_from_the_next_step(ran, same, place, name):
    eager, captured = both(ran, place, *CHANGES[name])
    same(eager, captured)
    assert captured.step.stats().captured >= 5
    assert eager.losses[11] != eager.losses[13]


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: globals()["HELD"].base, "globals()"),
        (lambda: eval("HELD").base, "eval()"),
    ],
)
def test_variables_looked_up_by_text_keep_a_step_eager(ran, same, place, read, words):
    eager, captured = both(ran, place, scaled_by(read), lambda: setattr(HELD, "base", 3.0))
    same(eager, captured)
    assert captured.step.mode == "eager"
    assert words in captured.step.reason.message


def test_a_mode_of_torch_that_is_entered_anew_for_each_step_is_the_same_one(ran, same, place):
    def step_fn(model, batch):
        return mse(model, batch) * torch.ones(())

    runs = []
    for capture in ("off", "auto"):

        def recipe():
            model = nn.Linear(8, 4).to(place.device)
            return model, place.optimizer(model.parameters(), 0.02), step_fn

        def in_block(index):
            return place.batches(index)

        contexts = []

        def between(step, index, contexts=contexts):
            for context in contexts:
                context.__exit__(None, None, None)
            contexts[:] = [torch.device(place.device)]
            contexts[0].__enter__()

        try:
            runs.append(ran(recipe, in_block, 24, capture=capture, between=between))
        finally:
            for context in contexts:
                context.__exit__(None, None, None)
    same(*runs)
    assert runs[1].step.stats().captured >= 20
