"""Loops of the user's own on several ranks: the same guarantees as with the trainer's loop."""

import logging

import pytest
import torch
import torch._dynamo  # the first step of an optimizer loads it, which would count as a slow rank
from torch import nn

from flodl import record_scalar
from flodl.core.errors import StepContractError
from flodl.data import TensorDataSet
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.testing.sim import Fault, run_threads

SAMPLES, BATCH, EPOCHS = 96, 4, 2
MODES = {
    "cpu_sync": ElCheConfig.cpu_sync(),
    "cpu_cadence": ElCheConfig.cpu_cadence(anchor=4),
    "cpu_async": ElCheConfig.cpu_async(anchor=4),
    "gloo_sync": ElCheConfig.nccl_sync(collective="gloo"),
    "gloo_cadence": ElCheConfig.nccl_cadence(collective="gloo", anchor=4),
}
POINTS = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=POINTS.sum(1, keepdim=True))


def build(device):
    return nn.Linear(3, 1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)


def loss_of(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def train(worker):
    for epoch in worker.epochs():
        for batch in epoch:
            loss = loss_of(worker.model, batch)
            loss.backward()
            worker.step(loss)


def run(mode, loop=train, ranks=2, faults=(), train_step=None, **settings):
    return run_threads(
        ranks,
        build,
        adam,
        train_step,
        DATA,
        batch_size=BATCH,
        num_epochs=settings.pop("num_epochs", EPOCHS),
        elche=MODES[mode],
        delay_ms=[1.0, 2.0, 3.0],
        faults=faults,
        loop=None if train_step else loop,
        **settings,
    )


def check_accounts(result):
    assert result.finish.reason == "done"
    assert [account["committed"] for account in result.accounting] == [SAMPLES] * EPOCHS


@pytest.mark.parametrize("mode", MODES)
def test_every_sample_is_trained_once_an_epoch(mode):
    result = run(mode)
    check_accounts(result)
    assert not result.alerts
    first, second = result.metrics
    assert second.avg_loss < first.avg_loss
    assert first.samples_processed == SAMPLES


@pytest.mark.parametrize("mode", ["cpu_sync", "gloo_sync"])
def test_the_loop_trains_the_very_numbers_of_the_trainers_own(mode):
    own, managed = run(mode), run(mode, train_step=loss_of)
    assert torch.equal(own.state["weight"], managed.state["weight"])
    assert torch.equal(own.state["bias"], managed.state["bias"])


@pytest.mark.parametrize("mode", ["cpu_sync", "gloo_sync"])
def test_a_loop_may_zero_gradients_by_itself(mode):
    def zero(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                if worker.local_step % 3 == 1:
                    worker.optimizer.zero_grad()
                loss = loss_of(worker.model, batch)
                loss.backward()
                worker.step(loss)

    assert torch.equal(run(mode, zero).state["weight"], run(mode).state["weight"])


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_a_window_with_a_loss_that_is_not_finite_is_left_out(mode):
    result = run(mode, faults=[Fault(rank=1, at="step:5", kind="nan")])
    assert result.finish.reason == "done"
    for account in result.accounting:
        assert account["committed"] + account["skipped_nonfinite"] == SAMPLES
    assert result.accounting[0]["skipped_nonfinite"] > 0
    assert "nonfinite" in [code for code, _ in result.alerts]


def test_gradients_are_averaged_in_the_step_and_before_the_optimizer():
    # Adam's first step moves each weight by its rate, whatever the size of the gradient: only
    # ranks that have the same gradient before it hold the same weights after it
    seen = {}

    def once(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                loss = loss_of(worker.model, batch)
                loss.backward()
                own = worker.model.weight.grad.clone()
                worker.step(loss)
                if worker.local_step == 1:
                    seen[worker.rank] = (own, worker.model.weight.detach().clone())

    run("gloo_sync", once, num_epochs=1)
    assert seen.keys() == {0, 1}
    assert not torch.equal(seen[0][0], seen[1][0])
    assert torch.equal(seen[0][1], seen[1][1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", ["step:3", "step:7"])
def test_what_a_killed_rank_leaves_is_trained_by_the_others(mode, point):
    result = run(mode, ranks=3, faults=[Fault(rank=1, at=point)], elastic=ElasticConfig(respawn=0))
    check_accounts(result)
    assert [code for code, _ in result.alerts if code == "rank_lost"] == ["rank_lost"]


@pytest.mark.parametrize("mode", ["cpu_cadence", "gloo_sync"])
def test_a_killed_rank_comes_back_into_its_loop(mode):
    result = run(
        mode,
        faults=[Fault(rank=1, at="step:5")],
        elastic=ElasticConfig(respawn=1, grow_interval=0.01),
    )
    check_accounts(result)
    assert result.finish.is_partial is False


@pytest.mark.parametrize("mode", MODES)
def test_what_the_loop_raises_ends_the_run_and_names_its_line(mode):
    def fail(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                if worker.rank == 1 and worker.local_step == 3:
                    raise KeyError("what the user did")
                loss = loss_of(worker.model, batch)
                loss.backward()
                worker.step(loss)

    result = run(mode, fail)
    assert result.finish.is_failed
    (error,) = result.finish.errors
    assert error.type_name == "builtins:KeyError"
    assert 'raise KeyError("what the user did")' in error.traceback
    assert __file__ in error.traceback
    assert error.ranges


@pytest.mark.parametrize("mode", MODES)
def test_leaving_the_loop_on_one_rank_ends_the_run_for_all_in_good_order(mode):
    ended = []

    def leave(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                loss = loss_of(worker.model, batch)
                loss.backward()
                worker.step(loss)
                if worker.rank == 0 and worker.local_step == 5:
                    assert not worker.should_stop
                    return
        ended.append((worker.rank, worker.should_stop))

    result = run(mode, leave, num_epochs=50)
    assert (result.finish.reason, result.finish.is_failed) == ("stop_training", False)
    assert ended == [(1, True)]
    assert result.state  # the final one was written


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_async", "gloo_sync"])
def test_a_batch_without_its_step_comes_again_with_one_warning(mode, caplog):
    skipped = []

    def skip(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                loss = loss_of(worker.model, batch)
                loss.backward()
                if worker.rank == 0 and len(skipped) < 4 and worker.local_step % 2:
                    skipped.append(batch.ranges)
                    if len(skipped) % 2:
                        continue
                worker.step(loss)

    with caplog.at_level(logging.WARNING):
        result = run(mode, skip)
    check_accounts(result)
    assert skipped[0] == skipped[1]
    assert len([r for r in caplog.records if "it comes again" in r.message]) == 1
    expected = run(mode)
    if mode != "cpu_async":  # there, when averages arrive is a matter of time
        assert torch.equal(result.state["weight"], expected.state["weight"])


def test_a_batch_that_never_gets_its_step_is_an_error():
    def never(worker):
        for epoch in worker.epochs():
            for _ in epoch:
                pass

    (error,) = run("cpu_sync", never).finish.errors
    assert error.type_name == "flodl.core.errors:StepContractError"
    assert "3 times without w.step(loss)" in error.message


def test_a_second_step_for_a_batch_is_refused():
    refused = []

    def twice(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                loss = loss_of(worker.model, batch)
                loss.backward()
                worker.step(loss)
                with pytest.raises(StepContractError, match="no batch at hand"):
                    worker.step(loss)
                refused.append(worker.rank)

    check_accounts(run("cpu_cadence", twice))
    assert len(refused) == EPOCHS * SAMPLES // BATCH


def test_an_epoch_that_is_left_early_comes_again_until_it_is_trained():
    numbers = []

    def hop(worker):
        for epoch in worker.epochs():
            if worker.rank == 0:
                numbers.append(epoch.number)
            for batch in epoch:
                loss = loss_of(worker.model, batch)
                loss.backward()
                worker.step(loss)
                if worker.local_step == 2:
                    break

    check_accounts(run("cpu_sync", hop))
    assert numbers == [0, 0, 1]


def test_the_worker_tells_where_the_rank_is():
    seen = []

    def look(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                loss = loss_of(worker.model, batch)
                loss.backward()
                before = worker.local_step
                worker.step(loss)
                record_scalar("ones", 1.0)
                worker.record_scalar("twos", 2.0)
                seen.append((worker.rank, worker.world_size, epoch.number, worker.current_epoch))
                assert worker.local_step == before + 1
                assert worker.current_version > 0  # a sync mode averages in every step
                assert worker.global_step >= 2 * worker.local_step - 1

    result = run("cpu_sync", look)
    assert {(rank, world) for rank, world, _, _ in seen} == {(0, 2), (1, 2)}
    assert all(number == current for _, _, number, current in seen)
    assert result.metrics[0].scalars == {"ones": 1.0, "twos": 2.0}


def test_rates_can_be_set_from_the_loop():
    rates = []

    class Falling:
        def lr(self, step):
            return 1.0 / (1 + step)

    def tune(worker):
        for epoch in worker.epochs():
            for batch in epoch:
                if worker.local_step == 3:
                    worker.set_lr(0.5)
                if worker.local_step == 4:
                    worker.scale_lr(0.5)
                if worker.local_step == 5:
                    worker.set_scheduler(Falling())
                if worker.local_step == 6:
                    worker.set_lr_scale(10.0)
                loss = loss_of(worker.model, batch)
                loss.backward()
                at = worker.global_step
                worker.step(loss)
                rates.append((at, worker.current_lr))

    run("cpu_cadence", tune, ranks=1, num_epochs=1)
    assert [rate for _, rate in rates[:5]] == [0.05] * 3 + [0.5, 0.25]
    assert rates[5][1] == pytest.approx(1 / (1 + rates[5][0]))
    assert rates[6][1] == pytest.approx(10 / (1 + rates[6][0]))


def test_epoch_functions_and_evaluation_run_as_in_the_trainers_loop():
    told = []
    result = run(
        "cpu_cadence",
        eval_every=1,
        options={
            "epoch_fn": lambda epoch, worker: told.append((worker.rank, epoch)),
            "eval_fn": lambda model, batch, context: loss_of(model, batch),
            "eval_dataset": DATA,
        },
    )
    assert sorted(told) == [(rank, epoch) for rank in (0, 1) for epoch in range(EPOCHS)]
    assert result.evals[1]["eval"] < result.evals[0]["eval"]


def test_what_an_epoch_function_raises_does_not_let_its_loop_go_on():
    raised, after = [], []

    def fail(epoch, worker):
        raised.append(worker)
        raise OSError("no curriculum")

    def loop(worker):
        train(worker)
        after.append(worker)

    (error,) = run("cpu_sync", loop, options={"epoch_fn": fail}).finish.errors
    assert "no curriculum" in error.message
    assert raised
    assert not any(worker is other for worker in after for other in raised)
