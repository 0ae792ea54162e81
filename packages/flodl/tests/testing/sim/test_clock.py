"""A clock that is faster than that of the machine."""

import pytest
import torch
from torch import nn

from flodl import ElasticConfig, ElCheConfig, TensorDataSet
from flodl.core.errors import ConfigError
from flodl.testing.sim import Clock, Fault, run_threads

MODES = {
    "cpu_cadence": ElCheConfig.cpu_cadence(anchor=2),
    "cpu_async": ElCheConfig.cpu_async(anchor=2),
    "gloo_sync": ElCheConfig.nccl_sync(collective="gloo"),
}


def test_time_goes_by_faster_and_can_be_skipped():
    now = [100.0]
    clock = Clock(30.0, source=lambda: now[0])
    assert clock() == 100.0
    now[0] += 2
    assert clock() == 160.0
    clock.skip(5.0)
    assert clock() == 165.0


@pytest.mark.parametrize("rate", [0, -1.0, float("nan"), float("inf"), "fast"])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ConfigError, match="rate="):
        Clock(rate)


def test_time_does_not_run_backwards():
    with pytest.raises(ConfigError, match="backwards"):
        Clock().skip(-1.0)


def run(num_epochs, *faults, rate, mode="cpu_cadence"):
    return run_threads(
        2,
        lambda device: nn.Linear(1, 1),
        lambda parameters: torch.optim.SGD(parameters, lr=1e-6),
        lambda model, batch: model(batch["x"]).square().mean(),
        TensorDataSet(x=torch.arange(96.0).view(-1, 1)),
        batch_size=4,
        num_epochs=num_epochs,
        elche=MODES[mode],
        faults=faults,
        elastic=ElasticConfig(respawn=0),
        delay_ms=[5.0, 5.0],
        clock=Clock(rate),
    )


def test_a_rank_that_is_frozen_is_lost_after_half_a_minute_that_is_none():
    result = run(2, Fault(rank=1, at="step:5", kind="stop"), rate=60.0)
    assert [account["committed"] for account in result.accounting] == [96, 96]
    assert [death["cause"] for death in result.finish.report["deaths"]] == ["frozen"]
    assert ("rank_suspect", "rank1 shows no sign of life") in result.alerts


@pytest.mark.parametrize(
    ("mode", "epochs"), [("cpu_cadence", 12), ("cpu_async", 12), ("gloo_sync", 60)]
)
def test_a_run_of_threads_that_takes_long_is_not_lost(mode, epochs):
    # at a hundred seconds in one these take more than 30 s, after which a silent host is lost, and
    # the last one more than 300 s, after which a rank is that takes no step
    result = run(epochs, rate=100.0, mode=mode)
    assert [account["committed"] for account in result.accounting] == [96] * epochs
    # batches are not faster than usual, so windows seem slow
    assert {code for code, _ in result.alerts} <= {"slow_window"}
    assert result.finish.report["deaths"] == []
