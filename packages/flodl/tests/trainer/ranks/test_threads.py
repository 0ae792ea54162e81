"""Runs whose ranks are threads of the test's own process."""

import threading

import pytest
import torch
from torch import nn

from flodl import ElCheConfig, TensorDataSet, Trainer
from flodl.core.errors import ConfigError, RankError, RunInterrupted

POINTS = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataSet(x=POINTS, y=POINTS.sum(1, keepdim=True))


def build(device):
    return nn.Linear(4, 1).to(device)


def squares(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def trainer(step=squares, epochs=3, **settings):
    made = (
        Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=0.05), step)
        .dataset(DATA)
        .batch_size(8)
        .num_epochs(epochs)
        .ranks(2)
        .launch("thread")
    )
    for name, value in settings.items():
        getattr(made, name)(value)
    return made


@pytest.mark.parametrize(
    "elche",
    [
        ElCheConfig.cpu_sync(),
        ElCheConfig.cpu_cadence(anchor=2),
        ElCheConfig.cpu_async(),
        ElCheConfig.nccl_sync(collective="gloo"),
    ],
    ids=["sync", "cadence", "async", "gradients"],
)
def test_two_threads_train_every_sample_once(elche):
    handle = trainer(elche=elche).run()
    state = handle.join()
    losses = [metrics.avg_loss for metrics in handle.metrics()]
    assert len(losses) == state.epoch == 3
    assert losses[-1] < 0.5 * losses[0]
    assert [(each.committed, each.total) for each in handle.report.accounting] == [(96, 96)] * 3
    assert handle.devices == (torch.device("cpu"),) * 2
    assert sorted(state.params) == ["bias", "weight"]


def test_what_the_step_raises_reaches_the_caller():
    def failing(model, batch):
        raise KeyError("what the user did")

    with pytest.raises(RankError, match="what the user did") as caught:
        trainer(failing).run().join()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_run_of_threads_can_be_stopped():
    begun = threading.Event()

    def step(model, batch):
        begun.set()
        return squares(model, batch)

    handle = trainer(step, epochs=100_000).run()
    assert begun.wait(30)
    handle.stop()
    with pytest.raises(RunInterrupted) as caught:
        handle.join(30)
    assert sorted(caught.value.state.params) == ["bias", "weight"]


def test_observers_and_evaluation_are_called_here():
    seen, evaluated = [], []
    handle = trainer(
        metrics_fn=lambda metrics: seen.append(metrics.epoch),
        eval_dataset=DATA,
        eval_fn=lambda model, batch, _context: {"error": squares(model, batch)},
        eval_result_fn=lambda epoch, values: evaluated.append((epoch, sorted(values))),
    ).run()
    handle.join()
    assert seen == [0, 1, 2]
    assert evaluated == [(epoch, ["error"]) for epoch in range(3)]


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    trainer(epochs=1, save_path=tmp_path / "model").run().join()
    handle = trainer(epochs=2, resume_from=tmp_path / "model").run()
    assert handle.join().epoch == 2
    assert [metrics.epoch for metrics in handle.metrics()] == [1]


def test_what_needs_processes_is_refused():
    with pytest.raises(ConfigError, match="launch='thread' and dashboard, reports_per_epoch"):
        trainer(dashboard=0, reports_per_epoch=2).run()
