import io
import subprocess
import sys

import pytest
import torch
from torch import nn

from flodl.core.errors import CaptureError, NonFiniteError, StaleGraphError
from flodl.data import Batch
from flodl.engine.step import TrainStep
from flodl.graph import FlowBuilder
from flodl.metrics import record_scalar
from flodl.nn import ArgmaxSelector, GradScaler, SoftmaxRouter, StateAdd
from flodl.nn.schedulers import (
    CosineScheduler,
    CyclicLR,
    ExponentialLR,
    MultiStepLR,
    OneCycleLR,
    PlateauScheduler,
    StepDecay,
    WarmupScheduler,
)
from flodl.optim import SGD, Adam, AdamW, CapturableAdagrad, NAdam, RAdam, RMSprop

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact_kernels")]

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "plain sgd": lambda p: SGD(p, lr=0.05),
    "adam": lambda p: Adam(p, lr=1e-3),
    "adamw": lambda p: AdamW(p, lr=1e-3),
    "rmsprop": lambda p: RMSprop(p, lr=1e-3, momentum=0.5),
    "radam": lambda p: RAdam(p, lr=1e-3),
    "nadam": lambda p: NAdam(p, lr=1e-3),
    "adagrad": lambda p: CapturableAdagrad(p, lr=1e-2, lr_decay=1e-2),
    "torch adam": lambda p: torch.optim.Adam(p, lr=1e-3),
}


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def cross_entropy(model, batch):
    logits = model(batch[0])
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[1].reshape(-1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.inner = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))

    def forward(self, x):
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return x + self.inner(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 16, batch_first=True)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


def mlp():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4))


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


def transformer():
    return nn.Sequential(nn.Embedding(50, 32), Block(), Block(), nn.Linear(32, 50))


def graph():
    body = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    experts = [nn.Linear(16, 16) for _ in range(3)]
    builder = FlowBuilder(nn.Linear(8, 16)).loop_body(body).for_n(3).tag("middle")
    return builder.gate(SoftmaxRouter(16, 3), experts).through(nn.Linear(16, 4)).build()


def remembering_graph():
    builder = FlowBuilder(nn.Linear(8, 4)).through(StateAdd()).using("memory")
    return builder.through(torch.tanh).tag("memory").through(nn.Linear(4, 4)).build()


def draw(*shape):
    return lambda generator: torch.randn(*shape, generator=generator)


def tokens(*shape):
    return lambda generator: torch.randint(0, 50, shape, generator=generator)


MODELS = {
    "mlp": (mlp, draw(16, 8), draw(16, 4), mse),
    "convnet": (convnet, draw(8, 3, 8, 8), draw(8, 4), mse),
    "transformer": (transformer, tokens(4, 12), tokens(4, 12), cross_entropy),
    "gru": (Recurrent, draw(8, 6, 8), draw(8, 4), mse),
    "graph": (graph, draw(16, 8), draw(16, 4), mse),
}


def setting(name, optimizer="adam", step_fn=None):
    build, x, y, loss = MODELS[name]

    def recipe():
        model = build().cuda()
        return model, OPTIMIZERS[optimizer](model.parameters()), step_fn or loss

    def batches(index):
        generator = torch.Generator().manual_seed(index)
        return Batch([x(generator).cuda(), y(generator).cuda()], index=index)

    return recipe, batches


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_hundred_captured_steps_equal_the_eager_ones_bit_for_bit(ran, same, optimizer):
    recipe, batches = setting("mlp", optimizer)
    eager = ran(recipe, batches, 200, capture="off", max_grad_norm=0.5)
    captured = ran(recipe, batches, 200, capture="require", max_grad_norm=0.5)
    assert captured.step.stats().captured == 197
    assert captured.step.mode == "captured"
    same(eager, captured)


@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model_is_captured_with_equal_numbers(ran, same, model):
    recipe, batches = setting(model)
    eager = ran(recipe, batches, 60, capture="off")
    captured = ran(recipe, batches, 60, capture="require")
    assert captured.step.stats().captured == 57
    same(eager, captured)


PAIRS = [
    ("mlp", "sgd", torch.bfloat16, "scheduler", True, 1),
    ("convnet", "adamw", torch.float16, "constant", False, 4),
    ("transformer", "rmsprop", None, "scheduler", False, 4),
    ("gru", "radam", torch.bfloat16, "constant", True, 4),
    ("graph", "nadam", torch.float16, "scheduler", True, 1),
    ("mlp", "adagrad", torch.float16, "constant", False, 4),
    ("convnet", "adam", None, "constant", True, 1),
    ("transformer", "adam", torch.float16, "scheduler", True, 4),
    ("gru", "sgd", None, "scheduler", False, 1),
    ("graph", "adamw", torch.bfloat16, "constant", False, 4),
    ("mlp", "nadam", None, "constant", True, 4),
    ("convnet", "radam", torch.float16, "scheduler", True, 1),
    ("transformer", "sgd", torch.bfloat16, "constant", False, 1),
]


@pytest.mark.parametrize(("model", "optimizer", "amp", "rates", "clips", "accumulate"), PAIRS)
def test_pairs_of_settings_give_equal_numbers(
    ran, same, model, optimizer, amp, rates, clips, accumulate
):
    recipe, batches = setting(model, optimizer)

    def run(capture):
        options = {"amp": amp, "accumulate": accumulate, "capture": capture}
        if amp == torch.float16:
            options["scaler"] = GradScaler(init_scale=256.0, interval=7)
        if rates == "scheduler":
            options["scheduler"] = OneCycleLR(1e-2, 30)
        if clips:
            options["max_grad_norm"] = 0.3
        # 42 batches: with accumulation the last window is short
        return ran(recipe, batches, 42, **options)

    eager, captured = run("off"), run("require")
    assert captured.step.stats().captured >= 36
    same(eager, captured)


SCHEDULES = {
    "step": StepDecay(0.1, 5, 0.5),
    "exponential": ExponentialLR(0.1, 0.9),
    "milestones": MultiStepLR(0.1, [4, 9], 0.1),
    "cosine": CosineScheduler(0.1, 0.001, 20),
    "one cycle": OneCycleLR(0.1, 25),
    "cyclic": CyclicLR(0.01, 0.1, 4),
    "warmup": WarmupScheduler(CosineScheduler(0.1, 0.0, 20), 0.1, 5),
    "plateau": PlateauScheduler(0.1, 2, 0.5, 0.001),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_replays_follow_every_schedule(ran, same, name):
    recipe, batches = setting("mlp", "sgd")
    schedule = SCHEDULES[name]

    def observe(step, index):
        if name == "plateau":
            schedule.observe(1.0)

    start = schedule.observed() if name == "plateau" else None
    eager = ran(recipe, batches, 30, capture="off", scheduler=schedule, between=observe)
    if name == "plateau":
        schedule.restore(start)
    captured = ran(recipe, batches, 30, capture="require", scheduler=schedule, between=observe)
    same(eager, captured)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop", "adagrad"])
def test_an_infinite_gradient_inside_a_replay_skips_the_step_and_halves_the_scale(
    ran, same, optimizer
):
    recipe, plain = setting("mlp", optimizer)

    def batches(index):
        batch = plain(index)
        return batch.replace({"0": batch[0] * 1e30}) if index in (9, 14) else batch

    def run(capture):
        scaler = GradScaler(init_scale=1024.0)
        result = ran(
            recipe, batches, 20, amp=torch.float16, scaler=scaler, capture=capture,
            on_nonfinite="warn",
        )  # fmt: skip
        return result, scaler.scale_factor

    (eager, eager_scale), (captured, scale) = run("off"), run("require")
    assert eager_scale == scale == 256.0
    assert str(eager.losses) == str(captured.losses)
    eager.losses = captured.losses = []
    same(eager, captured)
    assert all(torch.isfinite(value).all() for value in captured.tensors.values())


def test_torchs_adagrad_is_captured_without_its_step_and_equals_eager(ran, same, caplog):
    recipe, batches = setting("mlp")

    def with_adagrad():
        model, _, step = recipe()
        return model, torch.optim.Adagrad(model.parameters(), lr=1e-2, lr_decay=1e-2), step

    eager = ran(with_adagrad, batches, 40, capture="off")
    captured = ran(with_adagrad, batches, 40, max_grad_norm=None)
    assert captured.step.mode == "captured-fwd-bwd"
    assert captured.step.reason.code == "optimizer_not_capturable"
    assert captured.step.stats().captured_fwd_bwd == 37
    same(eager, captured)
    lines = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert len(lines) == 1
    assert lines[0].startswith("capture: falling back to captured-fwd-bwd: optimizer_not_captur")
    assert "CapturableAdagrad" in lines[0]


@pytest.mark.parametrize("partial", ["auto", "eager", "capture"])
def test_a_partial_last_batch_gives_equal_numbers(ran, same, partial):
    recipe, whole = setting("mlp")

    def batches(index):
        batch = whole(index)
        return Batch([t[:5] for t in batch]) if index % 8 == 7 else batch

    eager = ran(recipe, batches, 50, capture="off")
    captured = ran(recipe, batches, 50, capture="require", partial=partial)
    same(eager, captured)
    second = captured.step.stats().signatures[1]
    assert second.mode == ("eager" if partial == "eager" else "captured")


def host_read(model, batch):
    loss = mse(model, batch)
    return loss * (0.5 if loss.item() > 0.5 else 0.4)


def host_tensor(model, batch):
    return mse(model, batch) + torch.tensor([0.1]).cuda().sum()


def branch(model, batch):
    loss = mse(model, batch)
    return loss * 2 if loss > 0.5 else loss


def masked(model, batch):
    error = (model(batch[0]) - batch[1]).square()
    return error[error > 0.01].mean()


SHARED = {}


def own_generator(model, batch):
    noise = torch.randn(16, 8, device="cuda", generator=SHARED["generator"])
    return (model(batch[0] + noise) - batch[1]).square().mean()


def recorded_number(model, batch):
    record_scalar("rows", batch.size)
    return mse(model, batch)


COUNTER = {"steps": 0}


def counting(model, batch):
    COUNTER["steps"] += 1
    return mse(model, batch) / COUNTER["steps"]


def waits(model, batch):
    torch.cuda.synchronize()
    return mse(model, batch)


@pytest.mark.parametrize(
    ("step_fn", "code"),
    [
        (host_read, "host_sync"),
        (host_tensor, "cpu_tensor_op"),
        (branch, "host_sync"),
        (masked, "dynamic_shape"),
        (own_generator, "rng_generator"),
        (recorded_number, "hook_side_effect"),
        (counting, "hook_side_effect"),
        (waits, "host_sync"),
    ],
)
def test_a_step_that_cannot_be_captured_says_why_and_equals_one_never_tried(
    ran, same, caplog, step_fn, code
):
    recipe, batches = setting("mlp", step_fn=step_fn)
    runs = []
    for capture in ("off", "auto"):
        SHARED["generator"] = torch.Generator(device="cuda").manual_seed(3)
        COUNTER["steps"] = 0
        runs.append(ran(recipe, batches, 30, capture=capture))
    same(*runs)
    step = runs[1].step
    assert step.mode == "eager"
    assert step.reason.code == code
    assert "test_gpu_step.py:" in (step.reason.location or "test_gpu_step.py:")
    lines = [r.message for r in caplog.records if r.message.startswith("capture: falling")]
    assert len(lines) == 1
    assert f"to eager: {code}: " in lines[0]


@pytest.mark.parametrize(
    ("step_fn", "code"), [(host_read, "host_sync"), (waits, "host_sync"), (masked, "dynamic_shape")]
)
def test_require_raises_with_the_reason(ran, step_fn, code):
    recipe, batches = setting("mlp", step_fn=step_fn)
    with pytest.raises(CaptureError) as caught:
        ran(recipe, batches, 30, capture="require")
    assert caught.value.reason == code


def test_after_a_failed_capture_dropout_new_captures_and_training_go_on(ran, same):
    failing, batches = setting("mlp", step_fn=waits)
    plain, _ = setting("mlp")
    ran(failing, batches, 10)
    torch.manual_seed(5)
    first = torch.rand(4, device="cuda")
    torch.manual_seed(5)
    assert torch.equal(first, torch.rand(4, device="cuda"))
    eager = ran(plain, batches, 20, capture="off")
    captured = ran(plain, batches, 20, capture="require")
    same(eager, captured)


def test_memory_that_runs_out_during_the_capture_costs_the_capture_only(ran, same, caplog):
    def greedy(model, batch):
        if torch.cuda.is_current_stream_capturing():
            torch.empty(2**44, dtype=torch.uint8, device="cuda")
        return mse(model, batch)

    recipe, batches = setting("mlp", step_fn=greedy)
    eager = ran(recipe, batches, 20, capture="off")
    captured = ran(recipe, batches, 20)
    same(eager, captured)
    assert captured.step.mode == "eager"
    assert captured.step.reason.code == "oom"
    lines = [r.message for r in caplog.records if r.message.startswith("capture: falling")]
    assert [line.split(": ")[1] for line in lines] == [
        "falling back to captured-fwd-bwd",
        "falling back to eager",
    ]


def test_another_shape_in_every_batch_stays_eager_and_is_said_once(ran, same, caplog):
    recipe, _ = setting("mlp")

    def batches(index):
        generator = torch.Generator().manual_seed(index)
        rows = 40 - index
        return Batch([draw(rows, 8)(generator).cuda(), draw(rows, 4)(generator).cuda()])

    eager = ran(recipe, batches, 30, capture="off")
    captured = ran(recipe, batches, 30, max_graphs=4)
    same(eager, captured)
    assert captured.step.reason.code == "too_many_signatures"
    assert caplog.text.count("too_many_signatures") == 1


def test_a_loss_that_is_not_finite_inside_a_replay_names_its_step(ran):
    recipe, plain = setting("mlp")

    def batches(index):
        batch = plain(index)
        return batch.replace({"0": batch[0] * float("nan")}) if index == 12 else batch

    with pytest.raises(NonFiniteError, match="at step 12"):
        torch.manual_seed(0)
        model, optimizer, step_fn = recipe()
        step = TrainStep(step_fn, model, optimizer)
        for index in range(40):
            step(batches(index))
        step.flush()


def test_a_hook_that_appends_to_a_list_keeps_the_step_eager(ran, same):
    recipe, batches = setting("mlp")
    seen = []

    def hooked():
        model, optimizer, step_fn = recipe()
        model[0].register_forward_hook(lambda module, inputs, output: seen.append(1))
        return model, optimizer, step_fn

    eager = ran(hooked, batches, 20, capture="off")
    assert len(seen) == 20
    captured = ran(hooked, batches, 20)
    assert len(seen) == 40
    assert captured.step.reason.code == "hook_side_effect"
    assert "seen" in captured.step.reason.message
    same(eager, captured)


CHANGES = {
    "freeze": lambda step: step.model[0].requires_grad_(False),
    "weight decay": lambda step: step.optimizer.param_groups[0].update(weight_decay=0.1),
    "rate as a number": lambda step: step.optimizer.param_groups[0].update(lr=0.2),
    "rate in place": lambda step: step.optimizer.set_lr(0.2),
    "new memory": lambda step: setattr(
        step.model[0].weight, "data", step.model[0].weight.data.clone().mul_(1.5)
    ),
    "in place": lambda step: step.model[0].weight.data.mul_(1.5),
    "dropout off": lambda step: step.model[2].eval(),
    "dropout rate": lambda step: setattr(step.model[2], "p", 0.1),
    "whole model eval": lambda step: step.model.eval(),
    "other activation": lambda step: step.model.__setitem__(1, nn.Tanh()),
    "loaded by assignment": lambda step: step.model.load_state_dict(
        {name: value.clone() * 2 for name, value in step.model.state_dict().items()}, assign=True
    ),
    "a hook": lambda step: step.model[0].register_forward_hook(lambda m, i, output: output * 2),
    "a gradient hook": lambda step: step.model[0].weight.register_hook(lambda grad: grad * 3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_the_middle_counts_as_in_eager_training(ran, same, name):
    recipe, batches = setting("mlp", "sgd")

    def between(step, index):
        if index == 12:
            CHANGES[name](step)

    if name == "loaded by assignment":

        def between(step, index):
            if index == 12:
                CHANGES[name](step)
                step.optimizer.param_groups[0]["params"][:] = list(step.model.parameters())

    eager = ran(recipe, batches, 30, capture="off", between=between)
    captured = ran(recipe, batches, 30, between=between)
    same(eager, captured)
    assert captured.step.mode == "captured", captured.step.reason


SETTING = {"scale": 1.0}


def scaled(model, batch):
    return mse(model, batch) * SETTING["scale"]


def test_a_global_that_a_callback_changes_counts_from_the_next_step(ran, same):
    recipe, batches = setting("mlp", step_fn=scaled)

    def between(step, index):
        SETTING["scale"] = 1.0 if index < 12 else 3.0

    eager = ran(recipe, batches, 30, capture="off", between=between)
    captured = ran(recipe, batches, 30, between=between)
    same(eager, captured)
    assert captured.step.mode == "captured"


def test_a_number_that_changes_before_every_step_ends_in_eager_steps(ran, same):
    recipe, batches = setting("mlp", step_fn=scaled)

    def between(step, index):
        SETTING["scale"] = 1.0 + 0.1 * index

    eager = ran(recipe, batches, 30, capture="off", between=between)
    captured = ran(recipe, batches, 30, between=between)
    same(eager, captured)
    assert captured.step.reason.code == "baked_scalar"


def test_under_require_a_change_is_an_error_unless_announced(ran):
    recipe, batches = setting("mlp", "sgd")

    def freezing(step, index):
        if index == 12:
            step.model[0].requires_grad_(False)

    with pytest.raises(StaleGraphError, match="frozen or thawed"):
        ran(recipe, batches, 30, capture="require", between=freezing)

    def announcing(step, index):
        freezing(step, index)
        if index == 12:
            step.invalidate("froze the first layer")

    assert ran(recipe, batches, 30, capture="require", between=announcing).step.mode == "captured"


class Remembering(nn.Module):
    """Keeps a tensor from call to call as an attribute."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.memory = torch.zeros(4, device="cuda")

    def forward(self, x):
        out = self.layer(x) + self.memory
        self.memory = 0.5 * self.memory + out.mean(0).detach()
        return out


class Watching(nn.Module):
    """Keeps its last output for people to look at."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.last = None

    def forward(self, x):
        self.last = self.layer(x)
        return self.last


def with_model(build):
    _, batches = setting("mlp")

    def recipe():
        model = build().cuda()
        return model, OPTIMIZERS["sgd"](model.parameters()), mse

    return recipe, batches


def test_state_kept_in_an_attribute_is_noticed(ran, same):
    recipe, batches = with_model(Remembering)
    eager, captured = ran(recipe, batches, 20, capture="off"), ran(recipe, batches, 20)
    same(eager, captured)
    assert captured.step.reason.code == "hook_side_effect"
    assert "memory" in captured.step.reason.message


def test_state_that_hides_from_inspection_fails_the_second_replay_of_the_check(ran, same):
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)
            self.numbers = io.BytesIO(bytes(n % 200 + 1 for n in range(1000)))

        def forward(self, x):
            return self.layer(x) * (1 + 0.01 * self.numbers.read(1)[0])

    recipe, batches = with_model(Hidden)
    captured = ran(recipe, batches, 8)
    assert captured.step.reason.code == "verify_mismatch"
    assert captured.step.mode == "eager"


def test_an_output_kept_for_looking_at_does_not_stop_the_capture(ran, same):
    recipe, batches = with_model(Watching)
    eager = ran(recipe, batches, 20, capture="off")
    captured = ran(recipe, batches, 20, capture="require")
    same(eager, captured)
    assert torch.equal(eager.step.model.last, captured.step.model.last)


def test_state_of_a_graph_goes_from_step_to_step_and_can_be_reset(ran, same):
    recipe, batches = with_model(remembering_graph)

    def between(step, index):
        if index % 9 == 8:
            step.model.reset_state()

    eager = ran(recipe, batches, 40, capture="off", between=between)
    captured = ran(recipe, batches, 40, capture="require", between=between)
    same(eager, captured)
    assert captured.step.stats().captured == 33
    states = [run.step.model.get_state()["memory"] for run in (eager, captured)]
    assert torch.equal(*states)
    assert torch.equal(eager.step.model.tagged("memory"), captured.step.model.tagged("memory"))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_hundred_captured_steps_never_wait_for_the_gpu(ran):
    recipe, batches = setting("transformer")
    ready = [batches(index) for index in range(100)]
    torch.manual_seed(0)
    model, optimizer, step_fn = recipe()
    step = TrainStep(
        step_fn, model, optimizer, capture="require", max_grad_norm=1.0,
        scheduler=CosineScheduler(1e-3, 1e-5, 200), metrics_ring=64,
    )  # fmt: skip
    for batch in ready[:10]:
        step(batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in ready:
            step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    step.flush()
    assert step.stats().captured == 107


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_each_step_is_one_graph_launch(ran):
    recipe, batches = setting("mlp")
    step = ran(recipe, batches, 10, capture="require").step
    batch = batches(3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(5):
            step(batch)
    launches = sum(e.count for e in profile.key_averages() if "GraphLaunch" in e.key)
    assert launches == 5
    assert not [e.key for e in profile.key_averages() if e.key.startswith("aten::addmm")]


def test_losses_metrics_and_norms_arrive_in_order_and_once(ran):
    def step_fn(model, batch):
        loss = mse(model, batch)
        record_scalar("twice", 2 * loss)
        return loss, {"half": loss / 2}

    recipe, batches = setting("mlp", step_fn=step_fn)
    torch.manual_seed(0)
    model, optimizer, step_fn = recipe()
    step = TrainStep(step_fn, model, optimizer, max_grad_norm=1.0, metrics_ring=8)
    records, outputs = [], []
    with step.reporting_to(records.append):
        outputs = [step(batches(index)) for index in range(61)]
    assert [record.index for record in records] == list(range(61))
    assert {record.names for record in records} == {
        ("loss", "grad_norm", "metric:twice", "metric:half")
    }
    for record, output in zip(records, outputs, strict=True):
        assert float(output.loss) == record.values[0]
        assert output.metrics["twice"].item() == pytest.approx(2 * record.values[0])
        assert output.metrics["half"].item() == pytest.approx(record.values[0] / 2)
        assert output.grad_norm.item() == record.values[1] > 0
    assert step.mode == "captured"


def test_a_checkpoint_in_the_middle_continues_bit_for_bit(ran, same):
    recipe, batches = setting("mlp")
    whole = ran(recipe, batches, 60, capture="require")
    half = ran(recipe, batches, 30, capture="require")
    saved = [x.state_dict() for x in (half.step.model, half.step.optimizer, half.step)]
    random_state = torch.cuda.get_rng_state()
    torch.manual_seed(99)
    model, optimizer, step_fn = recipe()
    model.load_state_dict(saved[0])
    step = TrainStep(step_fn, model, optimizer, capture="require")
    optimizer.load_state_dict(saved[1])
    step.load_state_dict(saved[2])
    torch.cuda.set_rng_state(random_state)
    losses = []
    with step.reporting_to(lambda record: losses.append(record.values[0])):
        for index in range(30, 60):
            step(batches(index))
    assert half.losses + losses == whole.losses
    assert step.global_step == 60
    for name, value in model.state_dict().items():
        assert torch.equal(value, whole.tensors[name])


def test_pinned_batches_go_through_the_staging_slots_with_equal_numbers(ran, same):
    recipe, on_gpu = setting("mlp")

    def pinned(index):
        return on_gpu(index).to("cpu").pin_memory()

    def pageable(index):
        return on_gpu(index).to("cpu")

    eager = ran(recipe, on_gpu, 60, capture="off")
    same(eager, ran(recipe, pinned, 60, capture="require"))
    same(eager, ran(recipe, pageable, 60, capture="require"))


def test_verification_every_few_steps_changes_no_number(ran, same):
    recipe, batches = setting("mlp")
    eager = ran(recipe, batches, 40, capture="off")
    same(eager, ran(recipe, batches, 40, capture="require", verify=5))
    same(eager, ran(recipe, batches, 40, capture="require", verify="off"))


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_failure_in_the_middle_of_a_window_loses_no_gradient(ran, same, accumulate):
    def late(model, batch):
        if torch.cuda.is_current_stream_capturing() and batch.index % accumulate == accumulate - 1:
            torch.cuda.synchronize()
        return mse(model, batch)

    recipe, batches = setting("mlp", step_fn=late)
    eager = ran(recipe, batches, 30, capture="off", accumulate=accumulate)
    captured = ran(recipe, batches, 30, accumulate=accumulate)
    same(eager, captured)
    assert captured.step.mode == "eager"


COMPILED = """
import torch
from torch import nn
from flodl.data import Batch
from flodl.engine.step import TrainStep

torch._inductor.config.compile_threads = 1
losses = []
for options in ({"capture": "off"}, {"capture": "require", "compile": True}):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = TrainStep(lambda m, b: (m(b[0]) - b[1]).square().mean(), model, optimizer, **options)
    found = []
    with step.reporting_to(lambda record, found=found: found.append(record.values[0])):
        for index in range(50):
            torch.manual_seed(index)
            step(Batch([torch.randn(16, 8).cuda(), torch.randn(16, 4).cuda()]))
    losses.append(found)
assert step.stats().captured == 47, step.stats()
assert all(abs(a - b) <= 2e-3 * abs(a) for a, b in zip(*losses)), losses
print("close")
"""


def test_compiled_kernels_inside_the_capture_stay_close_to_eager():
    # in a process of its own: the compiler's threads would outlive the test
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "close", done.stderr
    assert "going on without torch.compile" not in done.stderr


def test_stats_tell_what_happened(ran):
    recipe, batches = setting("mlp")
    stats = ran(recipe, batches, 100, capture="require").step.stats()
    assert (stats.captured, stats.eager, stats.captures, stats.recaptures) == (97, 3, 1, ())
    assert stats.pool_bytes > 0
    assert stats.host_us > 0
    assert stats.device_ms > 0
    assert [s.mode for s in stats.signatures] == ["captured"]
    assert stats.signatures[0].signature == "0 float32[16, 8], 1 float32[16, 4]"


def test_a_switch_that_reads_its_index_on_the_host_is_named_with_its_remedy(ran, same, caplog):
    def switching():
        branches = [nn.Linear(8, 4), nn.Linear(8, 4)]
        return FlowBuilder().switch(ArgmaxSelector(8, 2), branches).build()

    recipe, batches = with_model(switching)
    eager, captured = ran(recipe, batches, 20, capture="off"), ran(recipe, batches, 20)
    same(eager, captured)
    assert captured.step.reason.code == "data_dependent_node"
    assert 'mode="dense"' in captured.step.reason.message
    assert caplog.text.count("capture: falling back") == 1


def test_a_generator_of_ones_own_that_is_announced_is_captured():
    _, batches = setting("mlp")
    losses = {}
    for capture in ("off", "require"):
        SHARED["generator"] = torch.Generator(device="cuda").manual_seed(3)
        torch.manual_seed(0)
        model = mlp().cuda()
        step = TrainStep(
            own_generator,
            model,
            OPTIMIZERS["adam"](model.parameters()),
            capture=capture,
            generators=[SHARED["generator"]],
        )
        torch.manual_seed(1)
        found = losses[capture] = []
        with step.reporting_to(lambda record, found=found: found.append(record.values[0])):
            for index in range(20):
                step(batches(index))
    assert step.mode == "captured"
    assert losses["off"] == losses["require"]
