"""Averages of any shares of work against double precision, and their order of summation."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flodl.distributed.averaging import kernels
from flodl.distributed.averaging.assembly import Assembly, make_exchange
from flodl.distributed.averaging.exchange import Part, Payload
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.store import MemoryStore
from flodl.distributed.protocol.messages.window import ReduceGo

HOSTS = {"flat": "hhhh", "one host": "hhhh", "two hosts": "abab"}
serial = itertools.count()


def averages(thread_ranks, way, rows, weights, parts):
    """Return every rank's average of one row each."""
    memory, run = MemoryStore(), f"run{next(serial)}"
    count, numel = len(rows), rows[0].numel()

    def rank(k):
        seats = tuple(Seat(uid=f"u{r}", rank=r, host=HOSTS[way][r]) for r in range(count))
        formation = Formation(
            run=run,
            nonce="n",
            generation=1,
            rank=k,
            seats=seats,
            topology="flat" if way == "flat" else "two_level",
        )
        plan = Assembly(
            formation=formation,
            config=PlaneConfig(),
            numel=numel,
            side=1,
            device=torch.device("cpu"),
        )
        graveyard = Graveyard()
        exchange = make_exchange(plan, ControlStore(memory), graveyard, interrupted=lambda: False)
        side = torch.tensor([weights[k]], dtype=torch.float64)
        given_row = rows[k] if weights[k] else None
        exchange.start(Payload(values=given_row, parts=parts, side=side))
        while not exchange.advance():
            pass
        result = exchange.result.clone()
        exchange.close()
        assert graveyard.wait(20)
        return result

    return thread_ranks(count, rank)


@pytest.mark.parametrize("way", HOSTS)
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    samples=st.lists(st.integers(0, 500), min_size=2, max_size=4),
    gamma=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    numel=st.integers(1, 60),
    cut=st.integers(0, 60),
    seed=st.integers(0, 1000),
)
def test_any_shares_give_the_average_of_double_precision(
    thread_ranks, way, samples, gamma, numel, cut, seed
):
    assume(any(samples))
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(numel, generator=generator) for _ in samples]
    go = ReduceGo(
        window=1,
        total_weight=sum(n**gamma for n in samples if n),
        gamma=gamma,
        participants=len(samples),
        deadline=60,
    )
    weights = [go.weight(f"u{k}", n) for k, n in enumerate(samples)]
    cut = min(cut, numel)
    parts = tuple(p for p in (Part(0, cut), Part(cut, numel, True)) if p.start < p.stop)
    results = averages(thread_ranks, way, rows, weights, parts)
    stepped = [row.double() for row, n in zip(rows, samples, strict=True) if n]
    oracle = sum(w * row.double() for w, row in zip(weights, rows, strict=True))
    oracle[cut:] = (sum(stepped) / len(stepped))[cut:]
    torch.testing.assert_close(results[0].double(), oracle, rtol=0, atol=1e-6)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("way", ["flat", "one host"])
def test_the_sum_is_in_rank_order(thread_ranks, way):
    generator = torch.Generator().manual_seed(5)
    rows = [10.0**k * torch.randn(1000, generator=generator) for k in (3, -3, 2, 0)]
    weights = [0.1, 0.4, 0.2, 0.3]
    wanted = kernels.weighted_average(rows, weights)
    backwards = kernels.weighted_average(rows[::-1], weights[::-1])
    assert not torch.equal(wanted, backwards)
    for result in averages(thread_ranks, way, rows, weights, (Part(0, 1000),)):
        assert torch.equal(result, wanted)
