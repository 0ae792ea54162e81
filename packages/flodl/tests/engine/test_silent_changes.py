"""Attempts to make a replay silently wrong: each must equal a run that was never captured."""

import argparse
import functools
import types

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from flodl.data import Batch

FACTOR = 1.0
SETTINGS = types.SimpleNamespace(alpha=1.0, nested=argparse.Namespace(beta=[1.0, 2.0]))


class Config:
    gamma = 1.0


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


ACTIVATION = {"f": double}
SHAPE = double


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


class Scaled(nn.Module):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.scales = [1.0, {"inner": 1.0}]
        self.scale = torch.tensor(1.0)
        self.gain = nn.Parameter(torch.tensor([1.0]))

    def forward(self, x):
        return self.layer(x) * self.scales[0] * self.scales[1]["inner"] * self.scale * self.gain


class Derived(Scaled):
    pass


class Scaling(Scaled):
    def forward(self, x):
        return self.layer(x) * self.factor


class Trainer:
    """A training loop of the user's with its own counters, which the step does not read."""

    def __init__(self):
        self.steps_done = 0
        self.weight = 1.0
        self.teacher = nn.Linear(8, 4)
        self.criterion = Criterion()

    def step(self, model, batch):
        with torch.no_grad():
            target = self.teacher(batch[0])
        return self.criterion(model(batch[0]), target) * self.weight

    def fit(self):
        self.steps_done += 1


class Criterion:
    __slots__ = ("power",)

    def __init__(self):
        self.power = 2

    def __call__(self, output, target):
        return (output - target).abs().pow(self.power).mean()


def reads_index(model, batch):
    return mse(model, batch) * (1 + batch.index % 3)


def reads_epoch_of_a_changed_batch(model, batch):
    changed = batch.replace({"0": batch[0] * 2})
    return mse(model, changed) * (1 + changed.epoch)


def writes_into_its_batch(model, batch):
    batch[0].mul_(1.01)
    return mse(model, batch)


@pytest.fixture
def batches(place):
    return place.batches


def set_global(name, value):
    return lambda step: globals().update({name: value})


def by_name(path, value):
    def change(step):
        owner, _, name = path.rpartition(".")
        target = functools.reduce(getattr, owner.split(".") if owner else [], step)
        setattr(target, name, value)

    return change


def rebuild_optimizer_state(step):
    step.optimizer.load_state_dict(step.optimizer.state_dict())
    for state in step.optimizer.state.values():
        for key, value in state.items():
            if key != "step":
                value.mul_(0.5)


def add_group(step):
    parameter = nn.Parameter(torch.ones_like(step.model.gain))
    step.optimizer.add_param_group({"params": [parameter], "lr": 0.5, "weight_decay": 0.1})
    parameter.grad = torch.ones_like(parameter)


def load_by_assignment(step):
    doubled = {name: value.clone() * 2 for name, value in step.model.state_dict().items()}
    step.model.load_state_dict(doubled, assign=True)
    step.optimizer.param_groups[0]["params"][:] = list(step.model.parameters())


def drop_a_parameter(step):
    step.optimizer.param_groups[0]["params"].pop()


def new_parameter_of_equal_value(step):
    step.model.gain = nn.Parameter(step.model.gain.detach().clone())
    with torch.no_grad():
        step.model.gain.mul_(2)


def new_tensor_of_equal_value(step):
    step.model.scale = step.model.scale.clone()
    step.model.scale.mul_(3)


def turn(step):
    weight = step.model.layer.weight
    weight.data = weight.data.flip(1).t().contiguous().t()


def clamp(module, inputs):
    return (inputs[0].clamp(-0.5, 0.5),)


def uses_settings(model, batch):
    return mse(model, batch) * SETTINGS.alpha * SETTINGS.nested.beta[1] * Config.gamma * FACTOR


def uses_functions(model, batch):
    return ACTIVATION["f"](mse(model, batch)) + SHAPE(mse(model, batch))


HAZARDS = {
    "an attribute of a namespace": (
        Scaled,
        uses_settings,
        lambda s: setattr(SETTINGS, "alpha", 3.0),
    ),
    "a list inside a nested namespace": (
        Scaled,
        uses_settings,
        lambda s: SETTINGS.nested.beta.__setitem__(1, 5.0),
    ),
    "an attribute of a class": (Scaled, uses_settings, lambda s: setattr(Config, "gamma", 4.0)),
    "a global number": (Scaled, uses_settings, set_global("FACTOR", 2.0)),
    "a global function": (Scaled, uses_functions, set_global("SHAPE", triple)),
    "a function in a dictionary": (Scaled, uses_functions, lambda s: ACTIVATION.update(f=triple)),
    "a list in a module": (Scaled, mse, lambda s: s.model.scales.__setitem__(0, 2.0)),
    "a dictionary in a list in a module": (
        Scaled,
        mse,
        lambda s: s.model.scales[1].update(inner=2.0),
    ),
    "a list in a module of a derived class": (
        Derived,
        mse,
        lambda s: s.model.scales.__setitem__(0, 2.0),
    ),
    "a tensor attribute exchanged for an equal one": (Scaled, mse, new_tensor_of_equal_value),
    "a parameter exchanged for an equal one": (Scaled, mse, new_parameter_of_equal_value),
    "an attribute of the module's class": (Scaling, mse, lambda s: setattr(Scaling, "factor", 3.0)),
    "another class for a module": (Scaled, mse, lambda s: setattr(s.model, "__class__", Scaling)),
    "another forward for one module": (
        Scaled,
        mse,
        lambda s: setattr(s.model.layer, "forward", lambda x: x[:, :4]),
    ),
    "another forward for a class": (
        Scaling,
        mse,
        lambda s: setattr(Scaling, "forward", Scaled.forward),
    ),
    "a parametrization": (
        Scaled,
        mse,
        lambda s: parametrize.register_parametrization(s.model.layer, "bias", nn.Tanh()),
    ),
    "a hook": (Scaled, mse, lambda s: s.model.layer.register_forward_pre_hook(clamp)),
    "a hook of the optimizer": (
        Scaled,
        mse,
        lambda s: s.optimizer.register_step_post_hook(
            lambda o, a, k: o.param_groups[0]["params"][0].data.mul_(0.9)
        ),
    ),
    "a hook of all modules": (
        Scaled,
        mse,
        lambda s: HANDLES.append(
            nn.modules.module.register_module_forward_pre_hook(lambda m, i: (i[0] * 0.5,))
        ),
    ),
    "state of the optimizer loaded": (Scaled, mse, rebuild_optimizer_state),
    "parameters loaded by assignment": (Scaled, mse, load_by_assignment),
    "a group added": (Scaled, mse, add_group),
    "a parameter dropped from its group": (Scaled, mse, drop_a_parameter),
    "the layout of a parameter": (Scaled, mse, turn),
    "grad mode of a parameter": (Scaled, mse, lambda s: s.model.layer.bias.requires_grad_(False)),
    "autocast around the steps": (
        Scaled,
        mse,
        lambda s: HANDLES.append(entered(torch.autocast(s.model.gain.device.type, torch.bfloat16))),
    ),
    "the default dtype": (
        Scaled,
        lambda m, b: (mse(m, b) * torch.full((), 0.1, device=b[0].device)).float(),
        lambda s: torch.set_default_dtype(torch.float64),
    ),
    "deterministic kernels": (Scaled, mse, lambda s: torch.use_deterministic_algorithms(True)),
}
HANDLES = []
NOT_ON_A_GPU = {
    "deterministic kernels": "cuBLAS asks for an environment variable first",
    "the layout of a parameter": "the fused optimizer refuses it, eager and captured",
}


def entered(context):
    context.__enter__()
    return types.SimpleNamespace(remove=lambda: context.__exit__(None, None, None))


@pytest.fixture
def put_back():
    """Return a function that undoes what a hazard did to the process."""

    def undo():
        while HANDLES:
            HANDLES.pop().remove()
        globals().update(FACTOR=1.0, SHAPE=double)
        ACTIVATION.update(f=double)
        SETTINGS.alpha, SETTINGS.nested.beta[1] = 1.0, 2.0
        Config.gamma, Scaling.factor = 1.0, 1.0
        Scaling.forward = SCALING_FORWARD
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)

    yield undo
    undo()


SCALING_FORWARD = Scaling.forward


@pytest.mark.parametrize("name", HAZARDS)
@pytest.mark.parametrize("reads", [False, True])
def test_a_change_counts_from_the_next_step(ran, same, place, put_back, name, reads, batches):
    if name in NOT_ON_A_GPU and place.device.type == "cuda":
        pytest.skip(NOT_ON_A_GPU[name])
    build, step_fn, change = HAZARDS[name]

    def recipe():
        model = build().to(place.device)
        return model, place.optimizer(model.parameters(), 0.05), step_fn

    def between(step, index):
        if index == 25:
            change(step)

    each = (lambda out: float(out.loss)) if reads else (lambda out: None)
    runs = []
    for capture in ("off", "auto"):
        runs.append(ran(recipe, batches, 40, capture=capture, between=between, each=each))
        put_back()
    same(*runs)
    assert runs[1].step.stats().captured >= 22


@pytest.mark.parametrize(
    ("step_fn", "words"),
    [
        (reads_index, "batch.index"),
        (reads_epoch_of_a_changed_batch, "batch.epoch"),
        (writes_into_its_batch, "writes into its batch"),
    ],
)
def test_a_step_that_cannot_be_repeated_stays_eager(ran, same, place, step_fn, words, batches):
    def recipe():
        model = Scaled().to(place.device)
        return model, place.optimizer(model.parameters(), 0.05), step_fn

    data = {capture: [batches(i % 5) for i in range(5)] for capture in ("off", "auto")}

    def repeated(capture):
        return lambda index: data[capture][index % 5]

    eager = ran(recipe, repeated("off"), 20, capture="off")
    captured = ran(recipe, repeated("auto"), 20)
    same(eager, captured)
    assert words in captured.step.reason.message
    for one, other in zip(*data.values(), strict=True):
        assert torch.equal(one[0], other[0])


def test_counters_of_the_loop_around_are_no_reason_to_stay_eager(ran, same, place, batches):
    def runs(capture):
        torch.manual_seed(7)
        trainer = Trainer()
        trainer.teacher.to(place.device)

        def recipe():
            model = Scaled().to(place.device)
            return model, place.optimizer(model.parameters(), 0.05), trainer.step

        def between(step, index):
            trainer.fit()
            if index == 12:
                trainer.weight = 2.0
            if index == 18:
                trainer.criterion.power = 3
            if index == 24:
                trainer.teacher.weight.data = trainer.teacher.weight.data * 2

        return ran(recipe, batches, 30, capture=capture, between=between)

    eager, captured = runs("off"), runs("auto")
    same(eager, captured)
    assert captured.step.mode == "captured"
    assert len(captured.step.stats().recaptures) == 3


def test_a_batch_that_wants_gradients_stays_eager(ran, same, place, batches):
    def recipe():
        model = Scaled().to(place.device)
        return model, place.optimizer(model.parameters(), 0.05), mse

    def wanting(index):
        batch = batches(index)
        batch[0].requires_grad_()
        return batch

    eager, captured = ran(recipe, wanting, 12, capture="off"), ran(recipe, wanting, 12)
    same(eager, captured)
    assert "gradient" in captured.step.reason.message


def test_torch_schedules_of_the_users_own_reach_the_replays(ran, same, place, batches):
    def runs(capture):
        schedules = []

        def recipe():
            model = Scaled().to(place.device)
            optimizer = place.optimizer(model.parameters(), 0.05)
            return model, optimizer, mse

        def between(step, index):
            if not schedules:
                schedules.append(torch.optim.lr_scheduler.StepLR(step.optimizer, 3, 0.5))
            elif index > 1:
                schedules[0].step()

        return ran(recipe, batches, 20, capture=capture, between=between)

    eager, captured = runs("off"), runs("require")
    same(eager, captured)
    assert captured.step.current_lr == pytest.approx(0.05 * 0.5**6)


def test_batches_of_other_layouts_and_dtypes_are_signatures_of_their_own(ran, same, place, batches):
    def recipe():
        model = Scaled().to(place.device)
        return model, place.optimizer(model.parameters(), 0.05), step_fn

    def step_fn(model, batch):
        return (model(batch[0].float()) - batch[1]).square().mean()

    def varied(index):
        batch = batches(index)
        x = {0: batch[0], 1: batch[0].t().contiguous().t(), 2: batch[0].double()}[index % 3]
        return batch.replace({"0": x})

    eager = ran(recipe, varied, 30, capture="off")
    captured = ran(recipe, varied, 30, capture="require")
    same(eager, captured)
    assert len(captured.step.stats().signatures) == 3


def test_static_fields_that_pass_through_make_no_signature_and_are_not_seen(
    ran, same, place, batches
):
    seen = []

    def step_fn(model, batch):
        seen.append(dict(batch.static))
        return mse(model, batch)

    def recipe():
        model = Scaled().to(place.device)
        return model, place.optimizer(model.parameters(), 0.05), step_fn

    def named(index):
        batch = batches(index)
        return Batch(batch.into_list(), static={"name": f"sample {index}", "kind": "train"})

    options = {"passthrough": ["name"]}
    eager = ran(recipe, named, 20, capture="off", **options)
    captured = ran(recipe, named, 20, **options)
    same(eager, captured)
    assert len(captured.step.stats().signatures) == 1
    assert all(fields == {"kind": "train"} for fields in seen)
