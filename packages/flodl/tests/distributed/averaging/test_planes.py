"""One suite over every way in which parameters are averaged: threads, processes, shared memory."""

import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore

from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Progress
from flodl.distributed.averaging.state import State
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import (
    CollectiveError,
    Interrupted,
    PayloadMismatchError,
)
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.store import MemoryStore

WAYS = {
    "flat": ("flat", "h h h h h"),
    "one-host": ("two_level", "h h h h h"),
    "two-hosts": ("two_level", "a a b a b"),
    "a-host-each": ("two_level", "a b c d e"),
}


def meet(way, store, rank, count, generation=1):
    """What a rank's `form` takes; all ranks of a test give the same but their rank."""
    topology, hosts = WAYS[way]
    seats = tuple(
        Seat(uid=f"{host}/{k}", rank=k, host=host) for k, host in enumerate(hosts.split()[:count])
    )
    formation = Formation(
        run="r", nonce="n", generation=generation, rank=rank, seats=seats, topology=topology
    )
    return formation, store() if callable(store) else PrefixStore("t", TCPStore("127.0.0.1", store))


MEANS = [*(f"{way} by threads" for way in WAYS), "flat by processes", "two-hosts by processes"]


@pytest.fixture(params=MEANS)
def ranks(request):
    """Run ``body(rank, count, meeting, *args)`` on so many ranks, in every way."""
    way, _, means = request.param.partition(" by ")
    if means == "threads":
        memory = MemoryStore()
        thread_ranks = request.getfixturevalue("thread_ranks")
        meeting = (way, lambda: ControlStore(memory))
        yield lambda count, body, *args: thread_ranks(
            count, lambda rank: body(rank, count, meeting, *args)
        )
        return
    process_ranks = request.getfixturevalue("process_ranks")
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    meeting = (way, server.port)
    yield lambda count, body, *args: process_ranks(count, body, count, meeting, *args)
    del server  # it serves for as long as it is referred to


@pytest.fixture(autouse=True)
def no_segment_is_left():
    folder = Path("/dev/shm")
    before = set(folder.iterdir()) if folder.is_dir() else set()
    yield
    if folder.is_dir():
        assert not {
            path.name for path in set(folder.iterdir()) - before if path.name.startswith("flodl-g")
        }


def model_of(seed):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    model[2].bias.requires_grad_(False)
    with torch.no_grad():
        for value in [*model.parameters(), model[1].running_mean, model[1].running_var]:
            value.copy_(torch.randn(value.shape, generator=generator))
        model[1].num_batches_tracked.fill_(10 + seed)
    return model


def done(plane):
    progress = plane.wait(timeout_s=50)
    assert progress is Progress.DONE, plane.failure
    return plane.outcome


def averaging(rank, count, meeting, samples, windows, config, generation=1):
    """Average a few windows of models that drift at random; give all that the tests look at."""
    model = model_of(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    places = [t.data_ptr() for t in [*model.parameters(), *model.buffers()]]
    plane = ParameterPlane(model, config, optimizer=optimizer)
    plane.form(*meet(*meeting, rank, count, generation))
    plane.synchronize(0, range(1, count))
    start = {n: t.clone() for n, t in model.state_dict().items()}
    history = []
    for window in range(1, windows + 1):
        drift = torch.Generator().manual_seed(100 * window + rank)
        with torch.no_grad():
            for value in [*model.parameters(), model[1].running_mean, model[1].running_var]:
                if value is not model[2].bias:
                    value.add_(0.01 * torch.randn(value.shape, generator=drift))
            model[1].num_batches_tracked.add_(rank)
        before = {n: t.clone() for n, t in model.state_dict().items()}
        hashed = plane.payload_hash()
        snapshot = plane.snapshot(window)
        assert snapshot.is_finite
        plane.contribute(window, samples[rank] / sum(samples))
        outcome = done(plane)
        unchanged = {n: t.clone() for n, t in model.state_dict().items()}
        plane.commit()
        after = {n: t.clone() for n, t in model.state_dict().items()}
        history.append((before, unchanged, after, outcome, hashed))
    moved = places != [t.data_ptr() for t in [*model.parameters(), *model.buffers()]]
    shared = plane.consensus.tensors()
    plane.close()
    return start, history, moved, shared


AVERAGED = ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight"]
STATISTICS = ["1.running_mean", "1.running_var"]


def check_oracle(results, samples, atol):
    weights = [n / sum(samples) for n in samples]
    counted = [k for k, n in enumerate(samples) if n]
    for window in range(len(results[0][1])):
        befores = [history[window][0] for _, history, _, _ in results]
        afters = [history[window][2] for _, history, _, _ in results]
        for name in AVERAGED:
            oracle = sum(w * b[name].double() for w, b in zip(weights, befores, strict=True))
            torch.testing.assert_close(afters[0][name].double(), oracle, rtol=0, atol=atol)
        for name in STATISTICS:
            oracle = sum(befores[k][name].double() for k in counted) / len(counted)
            torch.testing.assert_close(afters[0][name].double(), oracle, rtol=0, atol=atol)
        for after in afters[1:]:
            for name, value in afters[0].items():
                assert torch.equal(after[name], value), name


def test_the_consensus_is_that_of_an_oracle_and_the_same_bits_everywhere(ranks):
    samples = [3, 0, 5]
    results = ranks(3, averaging, samples, 3, PlaneConfig(fabric="gloo"))
    for start, *_ in results:
        for name, value in results[0][0].items():
            assert torch.equal(start[name], value), name
    check_oracle(results, samples, atol=3e-7)
    for rank, (_, history, moved, shared) in enumerate(results):
        assert not moved
        for name in AVERAGED + STATISTICS:
            assert torch.equal(shared[name], history[-1][2][name])
        for window, (before, unchanged, after, outcome, _) in enumerate(history, 1):
            assert all(torch.equal(unchanged[name], before[name]) for name in before)
            assert after["1.num_batches_tracked"] == 10 + 2 * window
            assert outcome.window == window
            own = torch.cat([before[name].flatten() for name in AVERAGED]).double()
            shared_then = torch.cat([after[name].flatten() for name in AVERAGED]).double()
            wanted = (own - shared_then).norm() / shared_then.norm()
            assert outcome.delta == pytest.approx(wanted.item(), rel=1e-4), rank
            assert outcome.pre_norm == pytest.approx(own.norm().item(), rel=1e-6)
            assert outcome.post_norm == pytest.approx(shared_then.norm().item(), rel=1e-6)


def test_bf16_halves_the_bytes_and_keeps_the_precision_of_differences(ranks):
    samples = [1, 2, 1, 4]
    fp32 = ranks(4, averaging, samples, 4, PlaneConfig())
    narrow = ranks(4, averaging, samples, 4, PlaneConfig(wire="bf16"), 2)
    # a weight of size 1 rounded to bfloat16 would be off by 2e-3; a drift of 0.01 by 2e-5
    check_oracle(narrow, samples, atol=1e-4)
    for (_, wide_history, _, _), (_, history, _, _) in zip(fp32, narrow, strict=True):
        first, *rest = zip(wide_history, history, strict=True)
        assert first[1][3].bytes_out == first[0][3].bytes_out
        assert (first[1][4].dtype, rest[0][1][4].dtype) == ("float32", "bfloat16")
        for wide, slim in rest:
            for name in ("bytes_out", "bytes_in"):
                assert getattr(slim[3], name) == pytest.approx(getattr(wide[3], name) / 2, rel=0.01)


def absent(rank, count, meeting):
    """Rank 1 has neither a snapshot nor a share; rank 2 holds NaN."""
    model = model_of(0)
    plane = ParameterPlane(model, PlaneConfig(alpha=0.5))
    plane.form(*meet(*meeting, rank, count))
    with torch.no_grad():
        model[0].weight.add_(rank if rank < 2 else torch.nan)
    own = model[0].weight.clone()
    is_finite = True
    if rank != 1:
        is_finite = plane.snapshot(1).is_finite
    plane.contribute(1, 1.0 if rank == 0 else 0.0)
    outcome = done(plane)
    plane.commit()
    plane.close()
    return own, model[0].weight.clone(), is_finite, outcome.delta


def test_a_rank_without_a_share_adds_nothing_and_takes_part(ranks):
    results = ranks(3, absent)
    shared = results[0][0]
    assert torch.equal(results[0][1], shared)
    torch.testing.assert_close(results[1][1], (results[1][0] + shared) / 2)
    assert not results[2][2]
    assert torch.equal(results[2][1], shared)
    assert results[0][3] == 0.0
    assert results[1][3] is None
    assert results[2][3] is None


def wrong_shares(rank, count, meeting):
    plane = ParameterPlane(model_of(0), PlaneConfig())
    plane.form(*meet(*meeting, rank, count))
    plane.snapshot(1)
    plane.contribute(1, 0.4)
    progress = plane.wait(timeout_s=50)
    failure = str(plane.failure)
    with pytest.raises(CollectiveError):
        plane.contribute(1, 0.4)
    plane.close()
    return progress, failure


def test_shares_that_do_not_add_up_to_one_fail_on_every_rank(ranks):
    for progress, failure in ranks(2, wrong_shares):
        assert progress is Progress.FAILED
        assert "add up to 0.8" in failure or "its error says why" in failure


def unlike(rank, count, meeting):
    formation, store = meet(*meeting, rank, count)
    model = nn.Linear(4, 3 if rank == 0 else 2)
    plane = ParameterPlane(model, PlaneConfig())
    started_at = time.monotonic()
    try:
        plane.form(formation, store, interrupted=lambda: time.monotonic() > started_at + 1)
    except (PayloadMismatchError, Interrupted) as error:
        return type(error).__name__, str(error)
    finally:
        plane.close()


def test_ranks_with_different_models_are_told_before_any_collective(ranks):
    results = ranks(2, unlike)
    (text,) = [text for name, text in results if name == "PayloadMismatchError"]
    assert "weight (3, 4)" in text
    assert "weight (2, 4)" in text


def generations(rank, count, meeting):
    """Five ranks lose one in the middle of an average, go on with four, and then with five."""
    model = model_of(rank)
    plane = ParameterPlane(model, PlaneConfig())
    formation, store = meet(*meeting, rank, count)
    plane.form(formation, store)
    plane.synchronize(0, range(1, count))
    if rank < 4:
        plane.snapshot(1)
        plane.contribute(1, 0.25)
        assert plane.wait(timeout_s=0.2) is not Progress.DONE
    before = model[0].weight.clone()
    completed = plane.abandon()
    assert torch.equal(model[0].weight, before)
    if rank < 4:
        smaller, store = meet(*meeting, rank, 4, generation=2)
        plane.form(smaller, store)
        plane.snapshot(1)
        plane.contribute(1, 0.25)
        done(plane)
        plane.commit()
    whole, store = meet(*meeting, rank, count, generation=3)
    plane.form(whole, store)
    given = State(tensors={"m": torch.full((3,), 7.0)}, meta={"step": 9}) if rank == 0 else None
    received = plane.synchronize(0, [4], given)
    plane.snapshot(2)
    plane.contribute(2, 0.2)
    done(plane)
    plane.commit()
    extra = None if received is None else (received.tensors["m"].tolist(), received.meta)
    last = plane.last_completed
    plane.close()
    return completed, extra, last, model.state_dict()


def test_an_average_without_all_is_void_and_a_newcomer_gets_the_state(ranks):
    results = ranks(5, generations)
    assert [completed for completed, *_ in results] == [0] * 5
    assert [extra for _, extra, *_ in results] == [None] * 4 + [([7.0] * 3, {"step": 9})]
    assert [last for *_, last, _ in results] == [2] * 5
    for *_, values in results[1:]:
        assert all(torch.equal(values[name], value) for name, value in results[0][3].items())
