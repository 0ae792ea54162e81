"""Names and setters of floDl 0.3: they work, they warn, and they say nothing twice."""

import warnings

import pytest
import torch

import flodl
from flodl import ElCheConfig, ElCheMode, TensorDataSet, Trainer, TrainerConfig
from flodl.core.errors import ConfigError
from flodl.trainer import old_names
from flodl.trainer.old_settings import with_old_settings


def builder():
    return Trainer.builder(
        lambda device: torch.nn.Linear(2, 1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda model, batch: model(batch[0]).square().mean(),
    )


def settings(made):
    return with_old_settings(made.config, made._given).elche


@pytest.mark.parametrize(
    ("name", "now"),
    [("DdpHandle", "TrainHandle"), ("DdpBuilder", "Trainer.builder"), ("GpuWorker", "Worker")],
)
def test_old_names_are_what_they_are_called_now(name, now):
    with pytest.warns(DeprecationWarning, match=f"{name} is now {now}"):
        value = getattr(old_names, name)
    assert value.__name__ == {"DdpBuilder": "TrainerBuilder"}.get(name, now)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert getattr(flodl, name) is value
    assert name not in flodl.__all__


def test_old_outer_optimizers_have_the_original_form():
    with pytest.warns(DeprecationWarning, match="Momentum is now"):
        slow, nesterov = old_names.SlowMomentum(0.5, 0.8), old_names.NesterovMomentum(0.6, 0.7)
    assert slow == flodl.SlowMo(0.5, 0.8, lr_aware=False)
    assert nesterov == flodl.DiLoCo(0.6, 0.7)


@pytest.mark.filterwarnings("ignore:.*is now a field of ElCheConfig:DeprecationWarning")
def test_old_setters_write_into_elche():
    made = builder().policy(flodl.ApplyPolicy.Async).backend(flodl.AverageBackend.Cpu)
    made = made.max_overshoot(4).max_batch_diff(2).no_divergence_guard().snapshot_timeout(1.5)
    found = settings(made)
    assert found.mode is ElCheMode.CPU_ASYNC
    assert (found.max_overshoot, found.max_batch_diff, found.snapshot_timeout) == (4, 2, 1.5)
    assert isinstance(found.convergence_guard, flodl.NoGuard)
    kept = settings(builder().elche(ElCheConfig.cpu_sync()).anchor(3))
    assert kept == ElCheConfig.cpu_sync(anchor=3)
    assert settings(builder().policy("Sync").backend("Cpu").partition_ratios([3, 1])) == (
        ElCheConfig.cpu_sync(partition_ratios=(3, 1))
    )


def test_each_old_setter_warns_where_it_is_called():
    with pytest.warns(DeprecationWarning, match=r"anchor\(\) of the builder is now") as caught:
        builder().anchor(3)
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore:.*is now a field of ElCheConfig:DeprecationWarning")
def test_what_is_said_twice_or_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="anchor is set twice"):
        builder().anchor(3).anchor(3)
    with pytest.raises(ConfigError, match="anchor: set by elche"):
        settings(builder().elche(ElCheConfig.cpu_cadence(anchor=5)).anchor(3))
    with pytest.raises(ConfigError, match="mode: set by elche"):
        settings(builder().elche(ElCheConfig.cpu_cadence()).policy("Sync"))
    with pytest.raises(ConfigError, match="use cpu_async"):
        settings(builder().policy("Async").backend("Nccl"))
    data = TensorDataSet(torch.ones(8, 2))
    run = builder().dataset(data).batch_size(4).num_epochs(1).policy("Never")
    with pytest.raises(ConfigError, match="policy 'Never'"):
        run.run()


def test_the_old_configuration_is_one_of_the_trainer():
    with pytest.warns(DeprecationWarning, match="DdpRunConfig is now TrainerConfig"):
        old = old_names.DdpRunConfig
    found = old(batch_size=8, policy="Sync", backend="Cpu", max_grad_norm=5.0)
    wanted = TrainerConfig(batch_size=8, max_grad_norm=5.0, elche=ElCheConfig.cpu_sync())
    assert found == wanted
    with pytest.raises(ConfigError, match=r"\(anchors=\.\.\.\): no such field"):
        old(anchors=3)
