"""What goes wrong on one rank, and what becomes of the run: states, messages, accounts."""

import logging
import threading

import pytest
import torch
import torch._dynamo  # the first step of an optimizer loads it, which would count as a slow rank
from torch import nn

from flodl.data import TensorDataSet
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.testing.sim import Fault, run_threads

SAMPLES, BATCH, RANKS = 240, 4, 3
MODES = {
    "cpu_sync": ElCheConfig.cpu_sync(),
    "cpu_cadence": ElCheConfig.cpu_cadence(anchor=4),
    "cpu_async": ElCheConfig.cpu_async(anchor=4),
    "gloo_sync": ElCheConfig.nccl_sync(collective="gloo"),
    "gloo_cadence": ElCheConfig.nccl_cadence(collective="gloo", anchor=4),
}


class Counter(nn.Module):
    """One number a sample: its gradient is 1/4 for each time that the sample is in a batch."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))

    def forward(self, index):
        return -self.seen[index]


def counted(mode, faults=(), respawn=0, step=None, gamma=1.0, snapshot_timeout=5.0, **options):
    elche = MODES[mode].replace(snapshot_timeout=snapshot_timeout)
    if mode != "gloo_sync":
        elche = elche.replace(gamma=gamma)
    return run_threads(
        RANKS,
        lambda device: Counter(),
        lambda parameters: torch.optim.SGD(parameters, lr=4.0),
        step or (lambda model, batch: model(batch["index"]).mean()),
        TensorDataSet(index=torch.arange(SAMPLES)),
        batch_size=BATCH,
        num_epochs=2,
        elche=elche,
        delay_ms=[2.0, 2.0, 2.0],
        faults=faults,
        elastic=ElasticConfig(respawn=respawn, grow_interval=0.01),
        **options,
    )


def alerts(result, code):
    return [text for name, text in result.alerts if name == code]


def committed(result):
    return [account["committed"] for account in result.accounting]


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_runs_out_of_memory_goes_on_with_smaller_parts(mode, caplog):
    result = counted(mode, [Fault(rank=1, at="step:5", kind="oom")])
    assert result.finish.reason == "done"
    assert committed(result) == [SAMPLES] * 2
    assert not alerts(result, "rank_lost")
    (warning,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "a batch of 4 samples is taken in 2 parts of up to 2: injected" in warning


def test_parts_move_the_weights_as_the_whole_batch_does():
    quiet = counted("gloo_sync")
    split = counted("gloo_sync", [Fault(rank=1, at="step:5", kind="oom")])
    torch.testing.assert_close(split.state["seen"], quiet.state["seen"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", ["evict", "split"])
def test_a_rank_without_memory_is_given_up_and_comes_back(policy):
    tried = []

    def step(model, batch):
        is_narrow = "rank1" in threading.current_thread().name
        if is_narrow and (policy, batch.size) not in tried:
            tried.append((policy, batch.size))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return model(batch["index"]).mean()

    result = counted("cpu_cadence", respawn=2, step=step, oom_policy=policy)
    assert result.finish.reason == "done"
    assert committed(result) == [SAMPLES] * 2
    if policy == "evict":
        assert tried == [("evict", 4)]
    else:
        assert tried == [("split", 4), ("split", 2), ("split", 1)]
    (death,) = result.finish.report["deaths"]
    assert death["cause"] == "oom"
    (text,) = alerts(result, "rank_error")
    assert text == "rank1: torch:OutOfMemoryError: CUDA out of memory"


def test_a_run_ends_with_the_rank_that_has_no_memory_where_it_is_told_to():
    fault = Fault(rank=1, at="step:5", kind="oom")
    result = counted("cpu_cadence", [fault], oom_policy="fail")
    assert (result.finish.reason, result.finish.is_failed) == ("oom_error", True)
    (error,) = result.finish.errors
    assert error.kind == "oom"
    assert "injected: out of memory" in error.message
    assert "OutOfMemoryError" in error.traceback
    assert result.state  # what was trained until then


def test_more_deaths_than_are_tolerated_end_the_run_with_what_there_is():
    faults = [Fault(rank=0, at="step:5"), Fault(rank=1, at="step:9")]
    result = counted("cpu_cadence", faults, max_failures=1)
    assert (result.finish.reason, result.finish.is_failed) == ("max_failures", True)
    assert len(result.finish.report["deaths"]) == 2
    assert result.state


def test_as_many_deaths_as_are_tolerated_do_not():
    faults = [Fault(rank=0, at="step:5"), Fault(rank=1, at="step:9")]
    result = counted("cpu_cadence", faults, max_failures=2)
    assert result.finish.reason == "done"
    assert committed(result) == [SAMPLES] * 2


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_that_is_not_finite_is_quarantined_in_every_mode(mode):
    result = counted(mode, [Fault(rank=1, at="step:5", kind="nan")])
    assert result.finish.reason == "done"
    for account in result.accounting:
        whole = account["committed"] + account["skipped_nonfinite"]
        assert whole == account["total"] == SAMPLES
    assert torch.isfinite(result.state["seen"]).all()
    (text,) = alerts(result, "nonfinite")
    assert text.startswith("rank1 at step ")
    skipped = sum(account["skipped_nonfinite"] for account in result.accounting)
    if mode == "gloo_sync":
        assert text.endswith("all ranks have left such steps out")
        assert skipped == RANKS * BATCH
        entered = float(result.state["seen"].sum()) * RANKS
        assert entered == pytest.approx(2 * SAMPLES - skipped)  # lr 4, the mean over batches of 4
    else:
        assert skipped >= BATCH
        assert " of epoch 0): left out of window " in text


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_that_is_not_finite_ends_the_run_where_it_is_to(mode):
    result = counted(mode, [Fault(rank=1, at="step:5", kind="nan")], on_nonfinite="raise")
    assert result.finish.is_failed
    told = [error.message for error in result.finish.errors]
    assert result.finish.reason.startswith("nonfinite: rank1 at step ") or "NaN" in told[0]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "cpu_async"])
def test_a_rank_that_comes_back_has_the_weights_of_the_others(mode):
    result = counted(mode, [Fault(rank=1, at="step:7")], respawn=1, gamma=0.0)
    assert committed(result) == [SAMPLES] * 2
    first, *others = result.models.values()
    assert all(torch.equal(first["seen"], other["seen"]) for other in others)
    assert float(result.state["seen"].min()) >= 2 / RANKS - 1e-6


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence", "gloo_cadence", "cpu_async"])
@pytest.mark.parametrize("point", ["barrier:2", "reduce:2", "after_reduce:2", "form:2"])
def test_two_deaths_at_once_lose_no_sample(mode, point):
    faults = [Fault(rank=0, at=point), Fault(rank=2, at=point)]
    if point == "form:2":
        faults = [Fault(rank=0, at="step:7"), Fault(rank=2, at=point)]
    result = counted(mode, faults)
    assert result.finish.reason == "done"
    assert committed(result) == [SAMPLES] * 2
    # the first death may end the window that the second one was to happen in
    assert len(alerts(result, "rank_lost")) in (1, 2)


def test_the_last_death_ends_the_run_with_a_reason():
    result = counted("cpu_cadence", [Fault(rank=k, at="step:7") for k in range(RANKS)])
    assert result.finish.is_failed
    assert result.finish.reason.startswith("all_ranks_lost")


def test_a_snapshot_that_is_late_is_not_waited_for_and_loses_no_sample():
    slow = Fault(rank=2, at="step:16", kind="slow", delay_ms=150.0)
    result = counted("cpu_async", [slow], snapshot_timeout=0.1)
    assert result.finish.reason == "done"
    assert committed(result) == [SAMPLES] * 2
    late = alerts(result, "snapshot_late")
    assert late
    assert all(text.endswith("goes on without the snapshot of rank2") for text in late)
    assert result.finish.report["abort_count"] == len(late)
    assert not alerts(result, "rank_lost")
    assert float(result.state["seen"].min()) > 0
