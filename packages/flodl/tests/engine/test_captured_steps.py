"""The machinery of captured steps, on a GPU that is simulated by the CPU and on a real one."""

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.engine.tensors import ModelTensors
from flodl.graph import FlowBuilder
from flodl.nn import GradScaler, SoftmaxRouter, StateAdd, Unrolled
from flodl.nn.schedulers import CosineScheduler


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def mlp():
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4)
    )


@pytest.fixture
def batches(place):
    return place.batches


@pytest.fixture
def recipe(place):
    def make(step_fn=mse, build=mlp, **options):
        def recipe():
            model = build().to(place.device)
            return model, place.optimizer(model.parameters(), 0.05, **options), step_fn

        return recipe

    return make


@pytest.mark.parametrize("accumulate", [1, 3])
def test_captured_steps_equal_eager_ones(recipe, ran, same, accumulate, batches):
    options = {
        "max_grad_norm": 0.5, "accumulate": accumulate, "scheduler": CosineScheduler(0.1, 0.0, 20)
    }  # fmt: skip
    eager = ran(recipe(), batches, 31, capture="off", **options)
    captured = ran(recipe(), batches, 31, capture="require", **options)
    assert captured.step.stats().captured >= 24
    same(eager, captured)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_reducer_sees_flat_gradients_between_two_graphs(recipe, ran, same, accumulate, batches):
    seen = []

    def reduce(gradients):
        seen.append(([bucket.data_ptr() for bucket in gradients.buckets], gradients.layout))
        for bucket in gradients.buckets:
            bucket.mul_(2.0)

    options = {"max_grad_norm": 0.5, "accumulate": accumulate, "reduce": reduce}
    eager = ran(recipe(), batches, 31, capture="off", **options)
    windows = len(seen)
    assert windows == -(-31 // accumulate)
    captured = ran(recipe(), batches, 31, capture="require", **options)
    same(eager, captured)
    assert len(seen) == 2 * windows
    assert captured.step.mode == "captured"
    # the same memory at every replay, and one layout in both runs
    assert len({places[0] for places, _ in seen[windows + 4 :]}) == 1
    assert len({layout for _, layout in seen}) == 1
    plain = ran(recipe(), batches, 31, capture="off", accumulate=accumulate)
    assert plain.losses != eager.losses


def test_what_a_reducer_raises_ends_the_step_and_leaves_the_parameters(recipe, ran, batches):
    fails = []

    def reduce(gradients):
        gradients.buckets[0].fill_(float("nan"))
        if fails:
            raise ConnectionError("a rank is gone")
        gradients.buckets[0].fill_(0.5)

    step = ran(recipe(), batches, 8, capture="require", reduce=reduce).step
    before = [p.clone() for p in step.model.parameters()]
    fails.append(True)
    with pytest.raises(ConnectionError):
        step(batches(8))
    assert all(torch.equal(a, b) for a, b in zip(before, step.model.parameters(), strict=True))
    assert step.global_step == 8
    fails.clear()
    step(batches(9))
    assert step.global_step == 9
    assert all(torch.isfinite(p).all() for p in step.model.parameters())


def test_parameters_written_in_place_keep_their_memory_and_the_recording(recipe, ran, batches):
    step = ran(recipe(), batches, 8, capture="require").step
    state = ModelTensors(step.model)
    places = [t.data_ptr() for t in step.model.state_dict().values()]
    mean = [bucket.clone().mul_(0.5) for bucket in state.read()]
    state.write(mean)
    assert [t.data_ptr() for t in step.model.state_dict().values()] == places
    step(batches(8))
    assert step.stats().captures == 1
    assert step.stats().recaptures == ()
    with pytest.raises(ConfigError, match="buffers of shapes"):
        state.write([mean[0][:3]])


def test_a_scale_of_the_rates_needs_no_new_recording(recipe, ran, same, batches):
    def between(step, index):
        step.set_lr_scale(1.0 if index < 10 else 4.0)

    for schedule in (None, CosineScheduler(0.1, 0.0, 20)):
        runs = [
            ran(recipe(), batches, 20, capture=capture, scheduler=schedule, between=between)
            for capture in ("off", "require")
        ]
        same(*runs)
        assert runs[1].step.stats().captures == 1
        expected = (0.05 if schedule is None else schedule.lr(19)) * 4
        assert runs[1].step.current_lr == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def spoiled(batches):
    def make(index):
        batch = batches(index)
        return batch.replace({"0": batch[0] * float("inf")}) if index in (7, 12) else batch

    return make


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_that_are_not_finite_are_skipped_inside_the_graph(
    recipe, ran, same, accumulate, reduces, spoiled
):
    options = {"on_nonfinite": "skip", "accumulate": accumulate}
    if reduces:
        options["reduce"] = lambda gradients: None
    plain = nn.Sequential
    build = lambda: plain(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))  # noqa: E731
    eager = ran(recipe(build=build), spoiled, 20, capture="off", **options)
    captured = ran(recipe(build=build), spoiled, 20, capture="require", **options)
    assert str(eager.losses) == str(captured.losses)
    eager.losses = captured.losses = []
    same(eager, captured)
    assert all(torch.isfinite(value).all() for value in captured.tensors.values())
    assert captured.step.bad_batches.item() == 2
    counted = [v.item() for n, v in captured.tensors.items() if n.endswith("step")]
    assert set(counted) == {18.0 if accumulate == 1 else 8.0}


def test_a_flag_of_another_rank_skips_the_step_here_too(recipe, ran, batches):
    def reduce(gradients):
        if len(calls) == 6:
            gradients.flag.fill_(0.5)
        calls.append(gradients.flag.item())

    calls = []
    step = ran(recipe(), batches, 10, capture="require", on_nonfinite="skip", reduce=reduce).step
    assert [state["step"].item() for state in step.optimizer.state.values()] == [9.0] * 6


CHANGES = {
    "frozen": lambda step: step.model[0].requires_grad_(False),
    "dropout": lambda step: setattr(step.model[3], "p", 0.1),
    "memory": lambda step: setattr(
        step.model[0].weight, "data", step.model[0].weight.data.clone().mul_(1.5)
    ),
    "weight decay": lambda step: step.optimizer.param_groups[0].update(weight_decay=0.1),
    "statistics": lambda step: setattr(
        step.model[1].running_mean, "data", step.model[1].running_mean.data + 1
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_found_while_forward_and_backward_run_undoes_them(
    recipe, ran, same, name, batches
):
    def between(step, index):
        if index == 40:
            CHANGES[name](step)

    eager = ran(recipe(), batches, 70, capture="off", between=between)
    captured = ran(recipe(), batches, 70, between=between, each=lambda out: float(out.loss))
    same(eager, captured)
    stats = captured.step.stats()
    assert stats.captured >= 60
    assert len(stats.recaptures) == 1
    assert stats.captures == 3  # whole, split, and split again


def test_steps_that_nobody_waits_for_are_one_graph(recipe, ran, batches):
    assert ran(recipe(), batches, 40, capture="require").step.stats().captures == 1


def test_a_scaler_that_asks_the_host_leaves_forward_and_backward_captured(
    recipe, ran, same, batches, place
):
    class Asking(GradScaler):
        def step(self, optimizer, *args, **kwargs):
            if self._scale.item() > 0:
                return super().step(optimizer, *args, **kwargs)
            return None

    def run(capture):
        scaler = Asking(init_scale=64.0, device=place.device.type)
        return ran(recipe(), batches, 20, amp=torch.float16, scaler=scaler, capture=capture)

    eager, captured = run("off"), run("auto")
    same(eager, captured)
    assert captured.step.reason.code == "scaler_syncs"
    assert captured.step.mode == "captured-fwd-bwd"


def test_a_split_that_cannot_be_recorded_costs_the_split_only(
    recipe, ran, same, batches, monkeypatch
):
    from flodl.engine import recorder

    def failing(*arguments, **keywords):
        raise RuntimeError("no more graphs")

    eager = ran(recipe(), batches, 60, capture="off")
    monkeypatch.setattr(recorder, "record_update", failing)
    captured = ran(recipe(), batches, 60, capture="require", each=lambda out: float(out.loss))
    same(eager, captured)
    stats = captured.step.stats()
    assert stats.captured >= 55
    assert stats.captures == 2  # before the attempt, and after it


def test_gradients_can_be_looked_at_after_a_step_also_when_they_were_dropped_before(
    recipe, ran, batches
):
    seen = {}

    def run(capture):
        found = seen[capture] = []

        def dropping(step, index):
            if index:
                found.append([p.grad.clone() for p in step.model.parameters()])
            step.optimizer.zero_grad(set_to_none=True)

        ran(recipe(), batches, 20, capture=capture, between=dropping)

    run("off")
    run("require")
    for eager, captured in zip(*seen.values(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(eager, captured, strict=True))


def reading(output):
    return float(output.loss)


def test_an_infinite_gradient_skips_the_step_also_where_each_loss_is_read(
    recipe, ran, same, batches, place
):
    def scaled(capture):
        def spoiled(index):
            batch = batches(index)
            return batch.replace({"0": batch[0] * 1e30}) if index in (30, 41) else batch

        scaler = GradScaler(init_scale=1024.0, device=place.device.type)
        options = {"amp": torch.float16, "scaler": scaler, "on_nonfinite": "warn"}
        build = lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))  # noqa: E731
        found = ran(recipe(build=build), spoiled, 50, capture=capture, each=reading, **options)
        return found, scaler.scale_factor

    (eager, eager_scale), (captured, scale) = scaled("off"), scaled("require")
    assert eager_scale == scale == 256.0
    assert captured.step.stats().captures == 2
    eager.losses = captured.losses = []
    same(eager, captured)


def test_state_of_a_graph_that_is_reset_between_steps_where_each_loss_is_read(
    recipe, ran, same, batches
):
    def remembering():
        builder = FlowBuilder(nn.Linear(8, 4)).through(StateAdd()).using("memory")
        return builder.through(torch.tanh).tag("memory").through(nn.Linear(4, 4)).build()

    def between(step, index):
        if index % 9 == 8:
            step.model.reset_state()

    options = {"between": between, "each": reading}
    eager = ran(recipe(build=remembering), batches, 60, capture="off", **options)
    captured = ran(recipe(build=remembering), batches, 60, capture="require", **options)
    same(eager, captured)
    states = [run.step.model.get_state()["memory"] for run in (eager, captured)]
    assert torch.equal(*states)


def test_a_loop_that_reads_losses_now_and_then_is_not_recorded_over_and_over(
    recipe, ran, same, batches
):
    def now_and_then(output):
        if output.step_index // 40 % 2 == 0:
            output.loss.item()

    eager = ran(recipe(), batches, 400, capture="off", each=now_and_then)
    captured = ran(recipe(), batches, 400, capture="require", each=now_and_then)
    same(eager, captured)
    stats = captured.step.stats()
    assert stats.captures == 3  # whole, split, and whole again, from when on both are kept
    assert stats.eager <= 4


def everything_of(output):
    norm = output.grad_norm
    return float(output.loss), float(output.metrics["half"]), None if norm is None else norm.item()


def test_metrics_and_the_norm_can_be_read_at_once(recipe, ran, same, batches):
    def with_metric(model, batch):
        loss = mse(model, batch)
        return loss, {"half": loss / 2}

    for options in ({}, {"max_grad_norm": 0.3}):
        seen = {}
        for capture in ("off", "require"):
            values = seen[capture] = []
            ran(
                recipe(with_metric), batches, 40, capture=capture,
                each=lambda out, values=values: values.append(everything_of(out)),
                **options,
            )  # fmt: skip
        assert seen["off"] == seen["require"]


def experts_as_one():
    experts = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)) for _ in range(3)]
    flow = FlowBuilder().gate(SoftmaxRouter(8, 3), experts, batched=True)
    return flow.through(nn.Linear(8, 4)).build()


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.states = Unrolled(nn.GRUCell(2, 6))
        self.out = nn.Linear(6, 4)

    def forward(self, x):
        return self.out(self.states(x.view(-1, 4, 2)))


@pytest.mark.parametrize("build", [experts_as_one, Steps])
def test_work_done_for_many_at_once_is_captured(recipe, ran, same, batches, build):
    eager = ran(recipe(build=build), batches, 31, capture="off")
    captured = ran(recipe(build=build), batches, 31, capture="require")
    assert captured.step.stats().captured >= 24
    same(eager, captured)


def test_one_of_two_recordings_is_kept_until_the_other_comes_back(recipe, ran, same, batches):
    """The whole step as one graph, or the update apart: both have gradients."""
    kept = []

    def read_in_between(output):
        if 30 <= output.step_index < 80:
            float(output.loss)

    def look(step, index):
        if index in {28, 75, 119}:
            signatures = step._gpu.signatures() if step._gpu is not None else []
            kept.extend([part.is_split for part in each.programs] for each in signatures)

    options = {"between": look, "each": read_in_between}
    eager = ran(recipe(), batches, 120, capture="off", **options)
    kept.clear()
    same(eager, ran(recipe(), batches, 120, capture="require", **options))
    assert kept == [[False], [True], [True, False]]
