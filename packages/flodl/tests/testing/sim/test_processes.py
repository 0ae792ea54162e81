"""Ranks that are processes, and faults that are signals."""

import psutil
import pytest
import torch
from torch import nn

from flodl import ElasticConfig, ElCheConfig, TensorDataSet
from flodl.core.errors import ConfigError
from flodl.testing.sim import Fault, run_processes, run_threads

LIMIT_S = 90
SAMPLES = 192
DATA = TensorDataSet(x=torch.arange(SAMPLES, dtype=torch.float32).view(-1, 1))


@pytest.fixture(autouse=True)
def _importable_in_ranks(monkeypatch, pytestconfig):
    """Let ranks unpickle what this file defines, by the name under which it is imported here."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    monkeypatch.syspath_prepend(pytestconfig.rootpath)


def build(device):
    torch.manual_seed(1)
    return nn.Linear(1, 1).to(device)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-6)


def step(model, batch):
    return model(batch["x"]).square().mean()


def run(*faults, **options):
    given = {
        "batch_size": 4,
        "num_epochs": 2,
        "elche": ElCheConfig.cpu_cadence(anchor=2),
        "elastic": ElasticConfig(respawn=3),
        "delay_ms": [5.0, 5.0],
        "limit_s": LIMIT_S,
    }
    return run_processes(2, build, sgd, step, DATA, faults=faults, **given | options)


def check_accounts(result):
    assert [account["committed"] for account in result.accounting] == [SAMPLES] * 2
    assert [metrics.epoch for metrics in result.metrics] == [0, 1]
    assert sorted(result.state) == ["bias", "weight"]
    assert not result.finish.is_failed


@pytest.mark.slow
@pytest.mark.parametrize("at", ["step:5", "barrier:2", "reduce:2", "after_reduce:2"])
def test_a_rank_that_is_killed_comes_back_and_no_sample_is_lost(at):
    result = run(Fault(rank=1, at=at))
    check_accounts(result)
    assert [death["cause"] for death in result.finish.report["deaths"]] == ["signal 9"]
    assert "rank_lost" in [code for code, _ in result.alerts]


@pytest.mark.slow
def test_a_rank_that_is_stopped_for_a_moment_goes_on():
    result = run(Fault(rank=0, at="step:4", kind="stop", seconds=0.5))
    check_accounts(result)
    assert result.finish.report["deaths"] == []


@pytest.mark.slow
def test_a_controller_that_is_killed_is_started_again():
    result = run(Fault(rank=0, at="step:5", kind="controller_kill"))
    check_accounts(result)
    assert result.finish.report["deaths"] == []
    assert [code for code, _ in result.alerts] == ["controller_restarted"]


@pytest.mark.slow
def test_what_a_step_raises_ends_the_run_and_names_it():
    result = run(Fault(rank=0, at="step:3", kind="exception"))
    assert result.finish.is_failed
    assert "injected into the step" in str(result.error)
    assert result.state == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "code"), [("dup_join", "duplicate_member"), ("bad_token", "bad_token")]
)
def test_who_must_not_be_let_in_is_refused_and_changes_nothing(kind, code):
    result = run(Fault(rank=1, at="step:5", kind=kind))
    check_accounts(result)
    assert result.refusals == [(kind, code)]
    assert result.finish.report["deaths"] == []


@pytest.mark.slow
def test_a_link_that_stalls_for_a_moment_loses_nothing():
    result = run(Fault(rank=0, at="step:5", kind="drop_link", seconds=1.0))
    check_accounts(result)
    assert result.finish.report["deaths"] == []
    assert result.alerts == []


@pytest.mark.slow
def test_a_host_behind_a_link_that_is_gone_for_long_is_lost(monkeypatch):
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "0.1")  # suspect after 1 s, lost after 3
    result = run(Fault(rank=0, at="step:5", kind="drop_link", seconds=6.0))
    assert "all_ranks_lost" in result.finish.reason
    assert [death["cause"] for death in result.finish.report["deaths"]] == ["partition"] * 2
    codes = [code for code, _ in result.alerts]
    assert codes.index("host_suspect") < codes.index("rank_lost")


@pytest.mark.slow
def test_a_run_whose_launcher_is_killed_is_taken_up_by_another_one():
    result = run(Fault(rank=1, at="step:5", kind="launcher_kill"))
    check_accounts(result)
    assert result.finish.report["deaths"] == []


@pytest.mark.slow
def test_a_run_that_is_given_up_has_left_nothing():
    before = children()
    with pytest.raises(TimeoutError):
        run(num_epochs=1000, limit_s=6.0)
    assert children() == before


def children():
    """Processes of runs that this one has started."""
    found = psutil.Process().children(recursive=True)
    return {each.pid for each in found if "flodl" in " ".join(each.cmdline())}


@pytest.mark.parametrize(
    "kind", ["controller_kill", "launcher_kill", "drop_link", "dup_join", "bad_token"]
)
def test_threads_have_no_sockets_and_no_other_processes(kind):
    fault = Fault(rank=0, at="step:1", kind=kind, seconds=1.0)
    with pytest.raises(ConfigError, match=kind):
        run_threads(
            2,
            build,
            sgd,
            step,
            DATA,
            batch_size=4,
            num_epochs=1,
            elche=ElCheConfig.cpu_sync(),
            faults=[fault],
        )


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0, float("nan")])
def test_a_link_is_dropped_for_some_time(seconds):
    with pytest.raises(ConfigError, match="seconds="):
        Fault(rank=0, at="step:1", kind="drop_link", seconds=seconds)


def test_a_link_that_the_killed_launcher_holds_is_not_dropped():
    with pytest.raises(ConfigError, match="drop_link"):
        run(
            Fault(rank=0, at="step:3", kind="launcher_kill"),
            Fault(rank=0, at="step:9", kind="drop_link", seconds=1.0),
        )
