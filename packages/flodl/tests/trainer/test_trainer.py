import dataclasses
import inspect
import io
import json
import signal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from flodl import Monitor, Trainer, TrainerConfig, load_checkpoint, record_scalar
from flodl.core.errors import (
    CaptureError,
    CheckpointError,
    ConfigError,
    NonFiniteError,
    RunInterrupted,
    StepContractError,
)
from flodl.data import DataLoader, TensorDataSet
from flodl.engine.config import CaptureConfig
from flodl.nn import GradScaler
from flodl.trainer import LoaderOptions, TrainerBuilder
from flodl.trainer.old_settings import OldSettings


def line_data(count=64):
    x = torch.linspace(-1, 1, count).reshape(-1, 1)
    return TensorDataSet(x=x, y=3 * x - 1)


def build(device):
    return nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.1), nn.Linear(8, 1))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def mse(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def error(model, batch, context):
    return {"mae": (model(batch["x"]) - batch["y"]).abs().mean()}


def builder(step=mse, model=build, optimizer=sgd):
    return (
        Trainer.builder(model, optimizer, step)
        .dataset(line_data())
        .batch_size(16)
        .num_epochs(3)
        .devices(["cpu"])
    )


def test_a_run_learns_and_reports_every_epoch():
    handle = builder().num_epochs(20).run()
    metrics = list(handle.metrics())
    assert [m.epoch for m in metrics] == list(range(20))
    assert metrics[-1].avg_loss < 0.1 * metrics[0].avg_loss
    assert {m.batches_processed for m in metrics} == {4}
    assert {m.samples_processed for m in metrics} == {64}
    state = handle.join()
    assert (state.epoch, state.global_step) == (20, 80)


def test_the_run_equals_a_hand_written_loop_over_the_same_order():
    def plain(device):
        return nn.Linear(1, 1)

    handle = builder(model=plain).seed(7).run()
    seen = []

    def spy(model, batch):
        seen.append(batch["x"].clone())
        return mse(model, batch)

    first = {}

    def keeping(device):
        model = plain(device)
        first.update({k: v.clone() for k, v in model.state_dict().items()})
        return model

    builder(step=spy, model=keeping).seed(7).run()
    model = nn.Linear(1, 1)
    model.load_state_dict(first)
    optimizer = sgd(model.parameters())
    for x in seen:
        optimizer.zero_grad()
        (model(x) - (3 * x - 1)).square().mean().backward()
        optimizer.step()
    state = handle.join()
    assert len(seen) == 12
    for name, value in model.state_dict().items():
        assert torch.equal(state.params[name], value), name


def test_one_seed_gives_one_run_and_another_seed_another():
    def final(seed):
        return builder().seed(seed).run().join().state_dict()

    first, again, other = final(1), final(1), final(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_every_reader_of_metrics_sees_every_epoch():
    handle = builder().run()
    assert len(handle.poll_metrics()) == 3
    assert handle.poll_metrics() == []
    assert [handle.next_metrics().epoch for _ in range(3)] == [0, 1, 2]
    assert handle.next_metrics() is None
    assert len(list(handle.metrics())) == len(list(handle.metrics())) == 3


def test_recorded_scalars_and_evaluation_reach_the_metrics_and_the_console():
    def step(model, batch):
        record_scalar("rows", batch.size)
        return mse(model, batch)

    out = io.StringIO()
    handle = (
        builder(step)
        .eval_dataset(line_data(10))
        .eval_fn(error)
        .monitor(Monitor(3, stream=out))
        .run()
    )
    last = list(handle.metrics())[-1]
    assert last.scalars == {"rows": 16.0}
    assert last.per_rank_scalars == [{"rows": 16.0}]
    assert last.eval_ms > 0
    model = build("cpu")
    handle.join().load_into(model)
    model.eval()
    data = line_data(10)
    batch = next(iter(DataLoader(data, batch_size=10, shuffle=False).epoch(0)))
    expected = error(model, batch, None)["mae"].item()
    assert last.eval["mae"] == pytest.approx(expected, rel=1e-5)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("  epoch 1/3  loss=")
    assert "  mae=" in lines[0]
    assert "  rows=16.0000  [" in lines[0]
    assert lines[3].startswith("  training complete in ")


def test_evaluation_every_second_epoch_still_covers_the_last():
    handle = builder().eval_dataset(line_data(4)).eval_fn(error).eval_every(2).run()
    assert [m.eval is not None for m in handle.metrics()] == [False, True, True]


def test_evaluation_does_not_change_the_training():
    plain = builder().run().join().state_dict()
    evaluated = builder().eval_dataset(line_data(9)).eval_fn(error).run().join().state_dict()
    assert all(torch.equal(plain[name], evaluated[name]) for name in plain)


def test_callbacks_come_in_order():
    calls = []
    (
        builder()
        .num_epochs(2)
        .epoch_fn(lambda epoch: calls.append(("epoch", epoch)))
        .metrics_fn(lambda metrics: calls.append(("metrics", metrics.epoch)))
        .eval_dataset(line_data(4))
        .eval_fn(error)
        .eval_result_fn(lambda epoch, values: calls.append(("eval", epoch, sorted(values))))
        .run()
    )
    assert calls == [
        ("epoch", 0),
        ("metrics", 0),
        ("eval", 0, ["mae"]),
        ("epoch", 1),
        ("metrics", 1),
        ("eval", 1, ["mae"]),
    ]


def test_an_exception_in_an_observer_is_logged_and_the_run_goes_on(caplog):
    def observer(metrics):
        raise ZeroDivisionError("observer")

    handle = builder().metrics_fn(observer).run()
    assert handle.join().epoch == 3
    assert caplog.text.count("metrics_fn raised; training goes on") == 3
    assert "ZeroDivisionError" in caplog.text


def test_the_scheduler_sets_the_rate_of_each_step():
    class Steps:
        def lr(self, step):
            return 0.1 / (step + 1)

    handle = builder().scheduler(Steps()).run()
    assert [m.lr for m in handle.metrics()] == pytest.approx([0.1 / 4, 0.1 / 8, 0.1 / 12])


def test_the_checkpoint_holds_the_final_state(tmp_path):
    stem = tmp_path / "runs" / "line"
    state = builder().save_path(stem).run().join()
    saved = load_file(f"{stem}.fdl")
    assert saved.keys() == state.state_dict().keys()
    model = build("cpu")
    assert load_checkpoint(f"{stem}.fdl", model).is_complete
    assert all(
        torch.equal(value, state.state_dict()[name]) for name, value in model.state_dict().items()
    )
    assert sorted(path.name for path in stem.parent.iterdir()) == [
        "line.fdl", "line.meta.json", "line.optim", "line.rank0.fdl"
    ]  # fmt: skip


def test_checkpoint_every_saves_between_epochs(tmp_path):
    stem = tmp_path / "line"
    builder().num_epochs(5).save_path(stem).checkpoint_every(2).run()
    found = {
        file.name.removesuffix(".meta.json"): json.loads(file.read_text())["epoch"]
        for file in tmp_path.glob("*.meta.json")
    }
    assert found == {"line-epoch1": 2, "line-epoch3": 4, "line": 5}


def test_a_periodic_checkpoint_that_fails_is_said_and_the_final_one_raises(
    tmp_path, monkeypatch, caplog
):
    from flodl.engine import resume

    def full(*arguments, **keywords):
        raise CheckpointError("line.fdl: no space left on device")

    monkeypatch.setattr(resume, "save_checkpoint", full)
    with pytest.raises(CheckpointError, match="no space left"):
        builder().num_epochs(2).save_path(tmp_path / "line").checkpoint_every(1).run()
    assert caplog.text.count("failed, training goes on") == 2


def test_a_folder_that_cannot_be_made_stops_the_run_before_it_starts(tmp_path):
    (tmp_path / "file").write_text("in the way")
    called = []
    with pytest.raises(ConfigError, match=r"save_path=.*cannot be written: File exists"):
        builder(model=called.append).save_path(tmp_path / "file" / "line").run()
    assert not called


def test_a_loss_that_is_not_finite_ends_the_run_and_the_console_says_so(tmp_path):
    out = io.StringIO()
    with pytest.raises(NonFiniteError):
        (
            builder(lambda model, batch: mse(model, batch) * float("nan"))
            .monitor(Monitor(3, stream=out))
            .save_path(tmp_path / "line")
            .run()
        )
    assert out.getvalue().startswith("  training failed in ")
    assert list(tmp_path.iterdir()) == []


def interrupt_at(step):
    count = iter(range(10**6))

    def interrupting(model, batch):
        if next(count) == step:
            signal.raise_signal(signal.SIGINT)
        return mse(model, batch)

    return interrupting


def test_ctrl_c_finishes_the_batch_saves_and_carries_the_state(tmp_path, caplog):
    out = io.StringIO()
    with pytest.raises(RunInterrupted) as caught:
        (
            builder(interrupt_at(5))
            .save_path(tmp_path / "line")
            .monitor(Monitor(3, stream=out))
            .run()
        )
    state = caught.value.state
    assert (state.epoch, state.global_step) == (1, 6)
    assert "interrupted after 1 epoch and 6 steps; the model was saved to" in str(caught.value)
    saved = load_file(tmp_path / "line.fdl")
    assert all(torch.equal(saved[name], state.state_dict()[name]) for name in saved)
    assert "training aborted in" in out.getvalue()
    assert "press Ctrl-C again" in caplog.text
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_an_evaluation_between_epochs_stops_before_the_next_one():
    def interrupting(model, batch, context):
        if context.epoch == 0:
            signal.raise_signal(signal.SIGINT)
        return 0.0

    with pytest.raises(RunInterrupted) as caught:
        builder().eval_dataset(line_data(4)).eval_fn(interrupting).run()
    assert (caught.value.state.epoch, caught.value.state.global_step) == (1, 4)


def test_a_second_ctrl_c_stops_at_once():
    def twice(model, batch):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt) as caught:
        builder(twice).run()
    assert not isinstance(caught.value, RunInterrupted)


def test_a_handler_of_the_users_own_is_left_alone():
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    try:
        assert builder(interrupt_at(2)).run().join().epoch == 3
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [1]


def test_all_missing_settings_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        Trainer.builder(build, sgd, mse).clip_value(-1).checkpoint_every(2).run()
    text = str(caught.value)
    for words in (
        "dataset is not set",
        "batch_size is not set",
        "num_epochs is not set",
        "checkpoint_every is set and save_path is not",
        "clip_value=-1",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 0}, "batch_size=0: must be a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"num_epochs": True}, "num_epochs=True"),
        ({"eval_every": 0}, "eval_every=0"),
        ({"dataset": iter([])}, "must have a known length"),
        ({"dataset": []}, "dataset: holds no samples"),
        ({"eval_fn": error}, "eval_fn is set and eval_dataset is not"),
        ({"eval_dataset": line_data()}, "eval_dataset is set and eval_fn is not"),
        ({"eval_result_fn": print}, "it would never be called"),
        ({"monitor": Monitor(9, progress="none")}, "monitor is for 9 epochs and num_epochs is 3"),
        ({"devices": "cpu"}, "devices='cpu'"),
        ({"devices": []}, "devices=[]"),
        ({"devices": ["toaster"]}, "'toaster'"),
        ({"devices": ["cuda:99"]}, "cuda:99"),
        ({"on_nonfinite": "stop"}, "on_nonfinite='stop'"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_legal(change, words):
    config = dataclasses.replace(builder().config, **change)
    with pytest.raises(ConfigError) as caught:
        Trainer.run(build, sgd, mse, config)
    assert words in str(caught.value)


def test_the_builder_has_one_setter_for_each_field_of_the_configuration():
    setters = {
        name
        for name, value in inspect.getmembers(TrainerBuilder, inspect.isfunction)
        if not name.startswith("_") and name not in ("run", "into_worker", *vars(OldSettings))
    }
    assert setters == {field.name for field in dataclasses.fields(TrainerConfig)}


def test_loader_options_are_those_of_the_setter():
    setter = inspect.signature(TrainerBuilder.loader).parameters
    fields = {field.name: field.default for field in dataclasses.fields(LoaderOptions)}
    assert {n: p.default for n, p in setter.items() if n != "self"} == fields


def test_capture_options_are_those_of_the_setter():
    setter = inspect.signature(TrainerBuilder.capture).parameters
    fields = {field.name: field.default for field in dataclasses.fields(CaptureConfig)}
    assert {n: p.default for n, p in setter.items() if n != "self"} == fields


def test_precision_accumulation_and_compilation_reach_the_step():
    def backend(graph_module, example_inputs):
        return graph_module.forward

    plain = builder().run()
    handle = builder().amp(torch.bfloat16).accumulate(2).compile({"backend": backend}).run()
    assert handle.join().global_step == plain.join().global_step / 2
    assert list(handle.metrics())[-1].avg_loss != list(plain.metrics())[-1].avg_loss
    with pytest.raises(ConfigError, match="scaler is set and amp is not"):
        builder().scaler(GradScaler(device="cpu")).run()
    with pytest.raises(ConfigError, match="capture='maybe'"):
        builder().capture("maybe")


def test_the_handle_tells_how_steps_ran_and_requiring_a_gpu_is_an_error_without_one():
    stats = builder().run().step_stats
    assert (stats.eager, [s.reason.code for s in stats.signatures]) == (12, ["no_gpu"])
    with pytest.raises(CaptureError, match="no_gpu: capture is required"):
        builder().capture("require").run()


@pytest.mark.cuda
def test_on_a_gpu_steps_are_captured_by_default_with_the_numbers_of_eager_ones():
    def run(**capture):
        return (
            builder()
            .devices(["cuda"])
            .loader(drop_last=False)
            .batch_size(10)
            .num_epochs(8)
            .capture(**capture)
            .run()
        )

    eager, captured = run(mode="off"), run()
    assert captured.step_stats.captured > 30
    assert [s.mode for s in captured.step_stats.signatures] == ["captured", "captured"]
    assert [m.avg_loss for m in eager.metrics()] == [m.avg_loss for m in captured.metrics()]
    for name, value in eager.join().state_dict().items():
        assert torch.equal(value, captured.join().state_dict()[name])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": lambda device: "model"}, "model factory returned str"),
        ({"optimizer": lambda parameters: None}, "optimizer factory returned NoneType"),
    ],
)
def test_a_factory_that_returns_the_wrong_thing_is_named(arguments, words):
    with pytest.raises(StepContractError, match=words):
        builder(**arguments).run()


def test_the_state_is_a_copy_that_later_training_does_not_change():
    kept = {}

    def keep(device):
        kept["model"] = build(device)
        return kept["model"]

    state = builder(model=keep).run().join()
    before = state.params["0.weight"].clone()
    with torch.no_grad():
        kept["model"][0].weight.fill_(0)
    assert torch.equal(state.params["0.weight"], before)


def test_buffers_and_parameters_are_told_apart():
    state = builder(model=lambda device: nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))).run()
    assert set(state.join().params) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert set(state.join().buffers) == {
        "0.running_mean",
        "0.running_var",
        "0.num_batches_tracked",
    }
