"""A slow link holds results back by what the payload takes, and changes nothing else."""

import math

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.data import TensorDataSet
from flodl.distributed.averaging import plane
from flodl.distributed.averaging.exchange import Exchange
from flodl.distributed.config import ElCheConfig
from flodl.testing.sim import SlowLink, run_threads
from flodl.testing.sim.links import SlowExchange

WEIGHTS = 10_000


class Instant(Exchange):
    """Has its result at the second look."""

    def __init__(self, size):
        self.size, self.looks, self.is_open = size, 0, True

    def start(self, payload):
        self.payload, self.looks = payload, 0

    def advance(self):
        self.looks += 1
        self.result, self.sides = torch.ones(3), torch.ones(1, 2)
        self.bytes_out, self.bytes_in = self.size // 2, self.size
        return self.looks > 1

    def residual(self):
        return torch.tensor([0.5])

    def close(self):
        self.is_open = False


@pytest.mark.parametrize(
    ("link", "seconds"),
    [
        (SlowLink(), 0.0),
        (SlowLink(latency_ms=20.0), 0.02),
        (SlowLink(mbit_s=8.0), 1.0),
        (SlowLink(latency_ms=500.0, mbit_s=16.0), 1.0),
    ],
)
def test_a_result_comes_when_its_payload_would_have_arrived(link, seconds):
    now, inner = [10.0], Instant(1_000_000)
    slow = SlowExchange(inner, link, lambda: now[0])
    for _ in range(2):  # each average anew
        slow.start("payload")
        assert inner.payload == "payload"
        assert not slow.advance()
        now[0] += 5.0  # what the exchange itself takes comes before
        assert slow.advance() == (seconds == 0.0)
        now[0] += seconds * 0.99
        assert slow.advance() == (seconds == 0.0)
        now[0] += seconds * 0.02
        assert slow.advance()
        assert inner.looks == 2
    assert (slow.bytes_out, slow.bytes_in) == (500_000, 1_000_000)
    assert torch.equal(slow.result, torch.ones(3))
    assert torch.equal(slow.sides, torch.ones(1, 2))
    assert slow.residual() == 0.5
    slow.close()
    assert not inner.is_open


def test_a_rank_alone_has_no_link():
    slow = SlowExchange(Instant(0), SlowLink(latency_ms=1e9), lambda: 0.0)
    slow.start("payload")
    assert [slow.advance(), slow.advance()] == [False, True]


@pytest.mark.parametrize(
    "options", [{"latency_ms": -1.0}, {"latency_ms": math.inf}, {"mbit_s": 0.0}, {"mbit_s": -8.0}]
)
def test_links_that_cannot_be_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name}="):
        SlowLink(**options)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(WEIGHTS))

    def forward(self, index):
        return -self.seen[index]


@pytest.mark.parametrize("elche", [ElCheConfig.cpu_sync(), ElCheConfig.cpu_cadence(anchor=2)])
def test_averages_of_a_run_take_as_long_as_the_link_and_come_to_the_same(elche):
    def trained(link):
        return run_threads(
            2,
            lambda device: Counter(),
            lambda parameters: torch.optim.SGD(parameters, lr=1.0),
            lambda model, batch: model(batch["index"]).sum(),
            TensorDataSet(index=torch.arange(64)),
            batch_size=4,
            num_epochs=1,
            elche=elche.replace(deterministic="schedule"),
            link=link,
        )

    made, link = plane.make_exchange, SlowLink(latency_ms=10.0, mbit_s=32.0)
    fast, slow = trained(None), trained(link)
    assert plane.make_exchange is made
    least_ms = 1000 * link.delay_s(4 * WEIGHTS)
    windows = [row for row in slow.finish.report["windows"] if row["samples"]]
    assert windows
    assert min(row["reduce_ms"] for row in windows) >= least_ms
    assert torch.equal(fast.state["seen"], slow.state["seen"])
    assert slow.accounting == fast.accounting
