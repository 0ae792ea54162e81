import logging
import signal

import pytest
import torch
from torch import nn

from flodl import Monitor, StopTraining, Trainer, TrainerConfig, record_scalar
from flodl.core.errors import (
    ConfigError,
    LaunchError,
    NonFiniteError,
    RunInterrupted,
    StepContractError,
)
from flodl.data import TensorDataSet
from flodl.engine.bundle import find_bundle


def line_data(count=64):
    x = torch.linspace(-1, 1, count).reshape(-1, 1)
    return TensorDataSet(x=x, y=3 * x - 1)


def build(device):
    return nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.1), nn.Linear(8, 1))


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def mse(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def error(model, batch, context):
    return {"mae": (model(batch["x"]) - batch["y"]).abs().mean()}


def builder(step=None):
    return (
        Trainer.builder(build, adam, step)
        .dataset(line_data())
        .batch_size(16)
        .num_epochs(3)
        .devices(["cpu"])
    )


def take(worker, batch):
    loss = mse(worker.model, batch)
    loss.backward()
    worker.step(loss)
    return loss


def train(worker):
    for epoch in worker.epochs():
        for batch in epoch:
            take(worker, batch)


def train_by(given, body=train):
    """Train by a loop, and return the handle that the launcher's function gets."""
    handles = []
    with given.into_worker(handles.append) as worker:
        body(worker)
    (handle,) = handles
    return handle


CHANGES = {
    "plain": lambda given: given,
    "norm": lambda given: given.max_grad_norm(0.1),
    "value": lambda given: given.clip_value(0.01),
    "accumulate": lambda given: given.batch_size(8).accumulate(3),
    "schedule": lambda given: given.scheduler(
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_loop_gives_the_very_weights_of_the_trainers_own(change):
    own = train_by(CHANGES[change](builder())).join()
    managed = CHANGES[change](builder(mse)).run().join()
    for name, value in managed.params.items():
        torch.testing.assert_close(own.params[name], value, rtol=1e-6, atol=1e-7)
    assert (own.epoch, own.global_step) == (managed.epoch, managed.global_step)


def test_epochs_are_reported_evaluated_and_saved_as_in_the_trainers_loop(tmp_path):
    told, evals, seen = [], [], []
    given = (
        builder()
        .eval_fn(error)
        .eval_dataset(line_data(10))
        .eval_result_fn(lambda epoch, values: evals.append(epoch))
        .epoch_fn(lambda epoch, worker: told.append((epoch, worker.current_epoch)))
        .metrics_fn(lambda metrics: seen.append(metrics.scalars))
        .monitor(Monitor(3))
        .save_path(tmp_path / "line")
    )

    def body(worker):
        for epoch in worker.epochs():
            assert worker.model.training
            for batch in epoch:
                take(worker, batch)
                record_scalar("double", 2.0)
            assert evals[-1] == epoch.number  # the epoch is over when its loop is

    handle = train_by(given, body)
    metrics = list(handle.metrics())
    assert [each.epoch for each in metrics] == evals == [0, 1, 2]
    assert told == [(0, 0), (1, 1), (2, 2)]
    assert seen == [{"double": 2.0}] * 3
    assert {each.batches_processed for each in metrics} == {4}
    assert metrics[-1].avg_loss < metrics[0].avg_loss
    assert find_bundle(tmp_path / "line").meta["epoch"] == 3


def test_a_run_goes_on_from_a_checkpoint_of_either_tier(tmp_path):
    builder(mse).save_path(tmp_path / "line").num_epochs(2).run()
    handle = train_by(builder().resume_from(tmp_path / "line"))
    assert [each.epoch for each in handle.metrics()] == [2]
    whole = builder(mse).run().join()
    for name, value in whole.params.items():
        torch.testing.assert_close(handle.join().params[name], value, rtol=1e-6, atol=1e-7)


def test_the_worker_tells_where_it_is_and_sets_rates():
    rates = []

    def halved(optimizer):
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=10)

    with builder().num_epochs(1).into_worker() as worker:
        assert (worker.rank, worker.world_size, worker.device.type) == (0, 1, "cpu")
        assert (worker.global_step, worker.current_version, worker.should_stop) == (0, 0, False)
        for epoch in worker.epochs():
            for batch in epoch:
                if worker.local_step == 1:
                    worker.set_lr(0.5)
                if worker.local_step == 2:
                    worker.set_scheduler(halved)
                take(worker, batch)
                rates.append(worker.current_lr)
    assert worker.local_step == worker.global_step == 4
    assert rates == [0.01, 0.5, 0.25, 0.25]


def test_a_batch_whose_step_is_missed_comes_again_without_its_gradients(caplog):
    seen = []

    def body(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                seen.append(batch["x"].clone())
                if len(seen) in (3, 6):
                    mse(worker.model, batch).backward()
                    continue
                take(worker, batch)

    def plain(device):
        return nn.Linear(1, 1)

    handle = train_by(
        Trainer.builder(plain, adam)
        .dataset(line_data())
        .batch_size(16)
        .num_epochs(3)
        .devices(["cpu"]),
        body,
    )
    assert len(seen) == 14
    assert torch.equal(seen[2], seen[3])
    assert torch.equal(seen[5], seen[6])
    assert len([r for r in caplog.records if "it comes again" in r.message]) == 1
    managed = (
        Trainer.builder(plain, adam, mse)
        .dataset(line_data())
        .batch_size(16)
        .num_epochs(3)
        .devices(["cpu"])
        .run()
    )
    assert torch.equal(handle.join().params["weight"], managed.join().params["weight"])


def test_an_epoch_that_is_left_comes_again():
    numbers = []

    def body(worker):
        for epoch in worker.epochs():
            numbers.append((epoch.number, repr(epoch)))
            for batch in epoch:
                take(worker, batch)
                if worker.local_step == 6:
                    break

    assert train_by(builder(), body).join().global_step == 12
    assert numbers == [(n, f"Epoch({n})") for n in (0, 1, 1, 2)]


def test_steps_that_do_not_fit_a_batch_are_refused():
    with builder().into_worker() as worker:
        with pytest.raises(StepContractError, match="no batch at hand"):
            worker.step(torch.zeros(()))
        batch = next(iter(next(worker.epochs())))
        with pytest.raises(StepContractError, match="no parameter has a gradient"):
            worker.step(mse(worker.model, batch))
        with pytest.raises(StepContractError, match=r"w.step\(\(16, 1\)\)"):
            worker.step(worker.model(batch["x"]))
        with pytest.raises(StepContractError, match=r"w.step\(float\)"):
            worker.step(1.0)
        take(worker, batch)
        with pytest.raises(StepContractError, match="no batch at hand"):
            worker.step(torch.zeros(()))


def test_a_batch_that_never_gets_its_step_ends_the_loop():
    with pytest.raises(StepContractError, match="3 times without"), builder().into_worker() as w:
        for epoch in w.epochs():
            for _ in epoch:
                pass


@pytest.mark.parametrize("leave", ["break", "stop", "exit"])
def test_leaving_the_loop_ends_the_run_in_good_order(tmp_path, leave):
    handles = []

    def leaving():
        with builder().save_path(tmp_path / "line").into_worker(handles.append) as worker:
            for epoch in worker.epochs():
                for batch in epoch:
                    take(worker, batch)
                    if worker.local_step == 6 and leave == "break":
                        return
                    if worker.local_step == 6:
                        raise StopTraining if leave == "stop" else SystemExit(0)

    if leave == "exit":
        with pytest.raises(SystemExit):
            leaving()
    else:
        leaving()
    (handle,) = handles
    state = handle.join()
    assert (state.epoch, state.global_step) == (1, 6)
    assert [each.epoch for each in handle.metrics()] == [0]
    meta = find_bundle(tmp_path / "line").meta
    assert (meta["epoch"], meta["global_step"], meta["save_reason"]) == (1, 6, "stop_training")


@pytest.mark.parametrize("step", [None, mse])
def test_an_observer_can_end_the_run(step):
    def enough(metrics):
        if metrics.epoch == 1:
            raise StopTraining

    given = builder(step).metrics_fn(enough)
    handle = given.run() if step else train_by(given)
    assert [each.epoch for each in handle.metrics()] == [0, 1]
    assert handle.join().epoch == 2


def test_what_the_loop_raises_comes_out_of_it(tmp_path):
    told = []
    given = builder().save_path(tmp_path / "line")
    with pytest.raises(KeyError), given.into_worker(told.append) as worker:
        for epoch in worker.epochs():
            for batch in epoch:
                take(worker, batch)
                raise KeyError("what the user did")
    assert not told
    assert not list(tmp_path.iterdir())
    record_scalar("outside", 1.0)  # no scope is left open
    assert worker.scalars.means() == {}


def test_a_loss_that_is_not_finite_ends_the_loop():
    with pytest.raises(NonFiniteError), builder().into_worker() as worker:
        for epoch in worker.epochs():
            for batch in epoch:
                loss = mse(worker.model, batch) * float("nan")
                loss.backward()
                worker.step(loss)


def test_ctrl_c_ends_the_loop_after_the_batch_at_hand(tmp_path):
    stopping = []
    with (
        pytest.raises(RunInterrupted) as caught,
        builder().save_path(tmp_path / "line").into_worker() as worker,
    ):
        for epoch in worker.epochs():
            for batch in epoch:
                if worker.local_step == 5:
                    signal.raise_signal(signal.SIGINT)
                take(worker, batch)
                stopping.append(worker.should_stop)
    assert stopping == [False] * 5 + [True]
    assert caught.value.state.global_step == 6
    assert find_bundle(tmp_path / "line").meta["save_reason"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_only_the_trainers_loop_does_is_refused():
    given = builder().amp(torch.bfloat16).compile().capture("require")
    with pytest.raises(ConfigError, match="amp, compile, capture: set"):
        given.into_worker()
    with pytest.raises(ConfigError, match="profile_graph"):
        builder().profile_graph().into_worker()
    with pytest.raises(ConfigError, match="num_epochs is not set"):
        Trainer.builder(build, adam).dataset(line_data()).batch_size(4).into_worker()


def test_a_run_needs_a_step_and_a_loop_of_ones_own_calls_none(caplog):
    with pytest.raises(ConfigError, match="there is no train step"):
        builder().run()
    with caplog.at_level(logging.WARNING):
        train_by(builder(mse))
    assert "the train step is not called" in caplog.text


@pytest.mark.parametrize("launch", ["spawn", "thread"])
def test_ranks_need_a_program_in_which_the_loop_stands(launch):
    config = builder().config
    assert isinstance(config, TrainerConfig)
    given = builder().devices(["cpu", "cpu"]).launch(launch)
    with pytest.raises(LaunchError, match="a loop of your own stands in the program"):
        given.into_worker()


def test_the_worker_of_the_trainers_loop_has_no_loop_of_its_own():
    def look(epoch, worker):
        with pytest.raises(StepContractError, match="the loop of this run is the trainer's"):
            worker.step(torch.zeros(()))
        with pytest.raises(StepContractError, match="into_worker"):
            worker.epochs()

    builder(mse).epoch_fn(look).run()
