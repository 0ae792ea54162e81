"""The step on the CPU, where it runs eagerly: the same code as on a GPU, and the same numbers."""

import pytest
import torch
from torch import nn

from flodl.core.errors import NonFiniteError
from flodl.data import Batch
from flodl.engine.step import TrainStep
from flodl.graph import FlowBuilder
from flodl.nn import GradScaler, StateAdd
from flodl.nn.schedulers import StepDecay


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def build(lr=0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [
        Batch([torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)])
        for _ in range(count)
    ]


def test_accumulated_steps_equal_a_hand_written_loop_and_a_short_window_is_a_mean():
    model, optimizer = build()
    step = TrainStep(mse, model, optimizer, accumulate=3, max_grad_norm=0.5)
    data = batches(8)
    outputs = [step(batch) for batch in data]
    assert [output.grad_norm is None for output in outputs] == [True, True, False] * 2 + [True] * 2
    assert (step.global_step, outputs[-1].step_index) == (2, 7)
    step.finish_window()
    assert step.global_step == 3
    step.finish_window()
    assert step.global_step == 3
    other, optimizer = build()
    for window in (data[:3], data[3:6], data[6:]):
        optimizer.zero_grad()
        for batch in window:
            (mse(other, batch) / 3).backward()
        if len(window) < 3:
            for parameter in other.parameters():
                parameter.grad.mul_(3 / len(window))
        nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        optimizer.step()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_schedule_counts_optimizer_steps_and_yields_to_a_rate_set_by_hand():
    model, optimizer = build()
    step = TrainStep(mse, model, optimizer, accumulate=2, scheduler=StepDecay(1.0, 2, 0.5))
    rates = []
    for index, batch in enumerate(batches(8)):
        step(batch)
        rates.append(step.current_lr)
        if index == 1:
            optimizer.param_groups[0]["lr"] = 0.25
    assert rates == [1.0, 1.0, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5]


def test_a_scheduler_of_torch_is_stepped_after_each_optimizer_step():
    model, optimizer = build(lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = TrainStep(mse, model, optimizer, scheduler=schedule)
    for batch in batches(3):
        step(batch)
    assert step.current_lr == 0.125


def test_bfloat16_runs_under_autocast_and_needs_no_scaler():
    seen = []

    def looks(model, batch):
        out = model(batch[0])
        seen.append(out.dtype)
        return (out - batch[1]).square().mean()

    model, optimizer = build()
    scaler = GradScaler(device="cpu")
    step = TrainStep(looks, model, optimizer, amp=torch.bfloat16, scaler=scaler)
    step(batches(1)[0])
    assert seen == [torch.bfloat16]
    assert not torch.is_autocast_enabled("cpu")


def test_on_the_cpu_the_mode_is_eager_and_says_why():
    model, optimizer = build()
    step = TrainStep(mse, model, optimizer)
    for batch in batches(2):
        step(batch)
    stats = step.stats()
    assert (step.mode, step.reason.code, stats.eager, stats.captured) == ("eager", "no_gpu", 2, 0)
    step.invalidate("nothing to do")


@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_without_a_loop_the_step_itself_looks_out_for_nan(policy, caplog):
    model, optimizer = build()
    step = TrainStep(mse, model, optimizer, on_nonfinite=policy)
    good = batches(1)[0]
    bad = good.replace({"1": good[1] * float("nan")})
    step(good)
    if policy == "raise":
        with pytest.raises(NonFiniteError, match="at step 1"):
            step(bad)
    else:
        step(bad)
        step(bad)
        assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_state_of_a_graph_is_cut_at_the_end_of_each_step():
    torch.manual_seed(0)
    builder = FlowBuilder(nn.Linear(3, 2)).through(StateAdd()).using("memory")
    graph = builder.through(torch.tanh).tag("memory").build()
    step = TrainStep(mse, graph, torch.optim.SGD(graph.parameters(), lr=0.1))
    for batch in batches(4):
        step(batch)
    assert graph.step_count == 4
    assert not graph.get_state()["memory"].requires_grad
    assert not graph.tagged("memory").requires_grad


def test_metrics_of_the_step_are_in_its_output():
    model, optimizer = build()
    step = TrainStep(lambda m, b: (mse(m, b), {"rows": b.size}), model, optimizer)
    output = step(batches(1)[0])
    assert output.metrics["rows"].item() == 8.0
    assert float(output.loss) == output.loss.item() > 0
    assert repr(output.metrics["rows"]) == "LazyScalar(8.0)"


def test_counters_and_scale_are_saved_and_loaded():
    model, optimizer = build()
    step = TrainStep(mse, model, optimizer, accumulate=2)
    for batch in batches(4):
        step(batch)
    other = TrainStep(mse, *build(), accumulate=2)
    other.load_state_dict(step.state_dict())
    assert other.global_step == 2
    assert other(batches(1)[0]).step_index == 4


def eager_backend(graph_module, example_inputs):
    return graph_module.forward


def broken_backend(graph_module, example_inputs):
    raise RuntimeError("no code for this machine")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_compiled_model_gives_the_same_numbers():
    losses = []
    for options in (False, {"backend": eager_backend}):
        step = TrainStep(mse, *build(), compile=options)
        losses.append([float(step(batch).loss) for batch in batches(3)])
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiler_that_fails_is_said_once_and_training_goes_on(caplog):
    step = TrainStep(mse, *build(), compile={"backend": broken_backend})
    plain = TrainStep(mse, *build())
    for batch in batches(3):
        assert float(step(batch).loss) == float(plain(batch).loss)
    lines = [r.message for r in caplog.records if r.message.startswith("compile: going on")]
    assert len(lines) == 1
    assert "no code for this machine" in lines[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_error_of_the_step_itself_is_not_taken_for_one_of_the_compiler():
    def broken(model, batch):
        raise KeyError("image")

    step = TrainStep(broken, *build(), compile={"backend": eager_backend})
    with pytest.raises(KeyError, match="image"):
        step(batches(1)[0])
