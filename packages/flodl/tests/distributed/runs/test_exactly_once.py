"""Every sample of every epoch enters the model that all ranks share exactly once, come what may."""

import itertools
import threading
import time

import pytest
import torch
import torch._dynamo  # the first step of an optimizer loads it, which would count as a slow rank
from torch import nn

from flodl.data import TensorDataSet
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.testing.sim import Fault, run_threads

SAMPLES, BATCH, RANKS, EPOCHS = 240, 4, 3, 2
MODES = {
    "cpu_sync": ElCheConfig.cpu_sync(),
    "cpu_cadence": ElCheConfig.cpu_cadence(anchor=4),
    "cpu_async": ElCheConfig.cpu_async(anchor=4),
    "gloo_sync": ElCheConfig.nccl_sync(collective="gloo"),
    "gloo_cadence": ElCheConfig.nccl_cadence(collective="gloo", anchor=4),
}
HOLDING = ("cpu_sync", "cpu_cadence", "gloo_cadence")
POINTS = ("step:7", "barrier:2", "reduce:2", "after_reduce:2")


class Counter(nn.Module):
    """One number a sample: its gradient is 1 for each time that the sample is in a batch."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))

    def forward(self, index):
        return -self.seen[index]


def counted(mode, faults=(), **options):
    data = TensorDataSet(index=torch.arange(SAMPLES))
    return run_threads(
        RANKS,
        lambda device: Counter(),
        lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lambda model, batch: model(batch["index"]).sum(),
        data,
        batch_size=BATCH,
        num_epochs=EPOCHS,
        elche=MODES[mode].replace(**options),
        delay_ms=[1.0, 2.0, 3.0],
        faults=faults,
        elastic=ElasticConfig(respawn=0),
    )


def check_accounts(result):
    assert result.finish.reason == "done"
    assert [account["epoch"] for account in result.accounting] == [*range(EPOCHS)]
    for account in result.accounting:
        assert account["committed"] == account["total"] == SAMPLES
        assert account["dropped"] == account["skipped_nonfinite"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_without_faults_every_sample_counts_once_an_epoch(mode):
    result = counted(mode)
    check_accounts(result)
    assert not result.alerts
    assert result.finish.is_partial is False


@pytest.mark.parametrize("mode", HOLDING)
def test_the_shared_weights_tell_how_often_each_sample_was_averaged_in(mode):
    # gamma=0: a sample that one rank of w trained in a window moves its weight by 1/w
    seen = counted(mode, gamma=0.0).state["seen"]
    shares = [1 / ranks for ranks in range(1, RANKS + 1)]
    legal = sorted({round(sum(pick), 6) for pick in itertools.product(shares, repeat=EPOCHS)})
    assert {round(float(value), 6) for value in seen} <= set(legal)


@pytest.mark.parametrize("mode", HOLDING)
@pytest.mark.parametrize("point", POINTS)
def test_a_death_moves_no_sample_twice_into_the_weights(mode, point):
    result = counted(mode, [Fault(rank=1, at=point)], gamma=0.0)
    check_accounts(result)
    shares = [1 / ranks for ranks in range(1, RANKS + 1)]
    legal = {round(sum(pick), 6) for pick in itertools.product(shares, repeat=EPOCHS)}
    assert {round(float(value), 6) for value in result.state["seen"]} <= legal
    assert ("rank_lost", "rank1 on threads is lost: signal 9") in result.alerts


@pytest.mark.parametrize("mode", ["cpu_async", "gloo_sync"])
@pytest.mark.parametrize("point", ["step:7", "step:15"])
def test_a_death_in_the_other_modes_loses_no_sample(mode, point):
    result = counted(mode, [Fault(rank=2, at=point)])
    check_accounts(result)
    assert float(result.state["seen"].min()) > 0


@pytest.mark.parametrize("mode", MODES)
def test_one_of_three_ranks_goes_on_alone(mode):
    result = counted(mode, [Fault(rank=0, at="step:5"), Fault(rank=2, at="step:9")])
    check_accounts(result)
    assert result.metrics[-1].member_ids == [1]
    assert len(result.finish.report["deaths"]) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_died_comes_back_and_works(mode):
    data = TensorDataSet(index=torch.arange(SAMPLES))
    result = run_threads(
        2,
        lambda device: Counter(),
        lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lambda model, batch: model(batch["index"]).sum(),
        data,
        batch_size=BATCH,
        num_epochs=4,
        elche=MODES[mode],
        delay_ms=[2.0, 2.0],
        faults=[Fault(rank=1, at="step:5")],
        elastic=ElasticConfig(respawn=1, grow_interval=0.01),
    )
    assert [a["committed"] for a in result.accounting] == [SAMPLES] * 4
    assert result.metrics[-1].member_ids == [0, 1]
    assert result.finish.is_partial is False
    assert [metrics.lost for metrics in result.metrics if metrics.lost] == [[1]]


@pytest.mark.parametrize("mode", ["cpu_cadence", "gloo_cadence"])
def test_who_waits_for_a_batch_that_takes_very_long_trains_on(mode):
    samples, trained = 2000, []

    def step(model, batch):
        trained.append((time.monotonic(), threading.current_thread().name))
        return model(batch["index"]).sum()

    class Wide(Counter):
        def __init__(self):
            super().__init__()
            self.seen = nn.Parameter(torch.zeros(samples, dtype=torch.float64))

    result = run_threads(
        2,
        lambda device: Wide(),
        lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        step,
        TensorDataSet(index=torch.arange(samples)),
        batch_size=BATCH,
        num_epochs=1,
        elche=MODES[mode].replace(gamma=0.0),
        delay_ms=[5.0, 10.0],
        faults=[Fault(rank=1, at="step:40", kind="stop", seconds=1.0)],
        elastic=ElasticConfig(respawn=0),
    )
    assert [a["committed"] for a in result.accounting] == [samples]
    assert {round(float(value), 6) for value in result.state["seen"]} <= {0.5, 1.0}
    times = {name: [at for at, by in trained if by == name] for _, name in trained}
    assert len(times) == 2
    pauses = [max(itertools.pairwise(at), key=lambda p: p[1] - p[0]) for at in times.values()]
    start, end = max(pauses, key=lambda p: p[1] - p[0])
    assert end - start >= 1.0
    # a window is 4 batches of the slower and 8 of the faster one
    assert sum(start < at < end for at, _ in trained) > 24


def test_all_ranks_end_with_the_same_bits():
    result = counted("cpu_cadence")
    first, *others = result.models.values()
    assert all(torch.equal(first["seen"], other["seen"]) for other in others)
    assert torch.equal(first["seen"].float(), result.state["seen"].float())
