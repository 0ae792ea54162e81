"""Devices take whole batches, as many as their speed allows, between two steps."""

import logging

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig
from flodl.distributed.replica import DdpConfig
from flodl.distributed.replica.cadence import Cadence, settings_of

CLOSE = {"rel": 1e-5, "abs": 1e-6}
HINTED = DdpConfig(max_anchor=1, speed_hint=(0, 2.0))


def test_counts_follow_the_hint_and_end_with_the_epoch():
    cadence = Cadence(2, settings_of(DdpConfig(max_anchor=10, speed_hint=(1, 2.3))))
    assert cadence.counts(100) == [23, 10]
    assert cadence.counts(20) == [14, 6]
    assert cadence.counts(1) == [1, 0]
    assert cadence.counts(None) == [23, 10]


def test_counts_follow_what_was_measured():
    cadence = Cadence(2, settings_of(DdpConfig(max_anchor=10)))
    assert cadence.counts(None) == [10, 10]
    cadence.report([100.0, 250.0], [10, 10], 1.0)
    assert cadence.counts(None) == [25, 10]
    assert cadence.shares == pytest.approx((25 / 35, 10 / 35))


def test_the_anchor_grows_to_the_limit_and_no_further():
    class Events:
        def __init__(self):
            self.kinds = []

        def event(self, event):
            self.kinds.append((event.kind, dict(event.fields)))

    events = Events()
    cadence = Cadence(2, settings_of(DdpConfig(max_anchor=30)), events)
    for _ in range(8):
        counts = cadence.counts(None)
        cadence.report([10.0 * counts[0], 25.0 * counts[1]], counts, 1000.0)
    assert min(cadence.counts(None)) == 30
    assert events.kinds == [("anchor", {"from": 10, "to": 20}), ("anchor", {"from": 20, "to": 30})]


def test_a_hint_of_a_device_that_is_not_there_is_refused(fakes):
    with pytest.raises(ConfigError, match="no device 2, but 0 to 1"):
        fakes(2, config=DdpConfig(speed_hint=(2, 2.0)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed_hint": (0, 0.5)}, "ratio of 1 or more"),
        ({"speed_hint": (-1, 2.0)}, "slowest device"),
        ({"overhead_target": 0.0}, "overhead_target"),
        ({"max_anchor": -1}, "max_anchor"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ],
)
def test_settings_out_of_range_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        DdpConfig(**options)


def turns(graph, epoch, square):
    """Train an epoch; return rows and loss of each step."""
    found = []
    for batch in graph.epoch(epoch):
        loss = square(graph.forward_batch(batch), batch)
        loss.backward()
        graph.step()
        found.append((batch.rows, [len(own) for own in batch.shards], loss.item()))
    return found


def test_each_step_trains_like_one_device_with_all_its_batches(fakes, small):
    graph, alone = fakes(2, config=HINTED), small.build()
    assert graph.has_el_che
    optimizer = small.sgd(alone.parameters())
    order = list(small.loader(batch_size=50).epoch(0))
    x, y = order[0]
    found = turns(graph, 0, small.square)
    assert found[0][:2] == ((8, 16), [1, 2])
    start = 0
    for rows, _, loss in found:
        stop = start + sum(rows)
        optimizer.zero_grad()
        wanted = (alone(x[start:stop]) - y[start:stop]).square().mean()
        wanted.backward()
        optimizer.step()
        assert loss == pytest.approx(wanted.item(), **CLOSE)
        start = stop
    assert start == 50, "every sample once, and the batches of the epoch's end shared out"
    assert sum(sum(counts) for _, counts, _ in found) == 7
    assert graph.training_step == len(found)


def test_tags_and_traces_hold_all_batches_of_all_devices(fakes, small):
    graph = fakes(2, config=HINTED)
    graph.set_loss_fn(lambda out, batch, ctx: out.mean() + ctx.tags["hidden"].square().mean())
    batch = next(iter(graph.epoch(0)))
    graph.forward_batch(batch).backward()
    assert graph.tagged("hidden").shape == (24, 8)
    assert [value.shape for value in graph.traces("steps")] == [(24, 8)] * 2
    with torch.no_grad():
        wanted = small.build()
        wanted(batch["x"])
    torch.testing.assert_close(graph.tagged("hidden").detach(), wanted.tagged("hidden"))
    torch.testing.assert_close(graph.traces("steps")[1].detach(), wanted.traces("steps")[1])
    assert graph.shard_sizes == (8, 16)
    graph.step()


def test_gradients_are_clipped_by_device_and_weighed_by_count(fakes, small):
    config = DdpConfig(max_anchor=1, speed_hint=(0, 2.0), max_grad_norm=0.1)
    graph = fakes(2, lambda ps: torch.optim.SGD(ps, lr=1.0), config=config)
    batch = next(iter(graph.epoch(0)))
    small.square(graph.forward_batch(batch), batch).backward()
    graph.step()
    hand = small.build()
    start = [p.detach().clone() for p in hand.parameters()]
    whole = [torch.zeros_like(p) for p in start]
    for rows, share in ((slice(0, 8), 1 / 3), (slice(8, 24), 2 / 3)):
        hand.zero_grad()
        (hand(batch["x"][rows]) - batch["y"][rows]).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(hand.parameters(), 0.1)
        for total, parameter in zip(whole, hand.parameters(), strict=True):
            total.add_(parameter.grad * share)
    for before, change, after in zip(start, whole, graph.parameters(), strict=True):
        torch.testing.assert_close(after.detach(), before - change, rtol=1e-5, atol=1e-7)


def test_leaving_an_epoch_with_gradients_steps_once_and_says_so(fakes, small, caplog):
    graph = fakes(2, config=HINTED)
    before = [p.detach().clone() for p in graph.parameters()]
    for batch in graph.epoch(0):
        small.square(graph.forward_batch(batch), batch).backward()
        break
    assert graph.training_step == 1
    assert "epoch 0 was left with gradients" in caplog.text
    assert not all(map(torch.equal, before, graph.parameters()))
    assert all(p.grad is None for p in graph.parameters())
    caplog.clear()
    for batch in graph.epoch(1):
        small.square(graph.forward_batch(batch), batch).backward()
        graph.step()
        break
    with torch.no_grad():
        for batch in graph.epoch(1):
            graph.forward_batch(batch)
            break
    assert graph.training_step == 2
    assert not caplog.text


def test_the_last_batch_without_a_step_gets_one_at_the_end(fakes, small, caplog):
    caplog.set_level(logging.WARNING)
    graph = fakes(2, config=HINTED)
    steps = 0
    for batch in graph.epoch(0):
        small.square(graph.forward_batch(batch), batch).backward()
        if batch["x"].shape[0] == 24:
            graph.step()
            steps += 1
    assert graph.training_step == steps + 1
    assert "stepping once" in caplog.text


def test_a_penalty_counts_where_the_first_device_has_no_batch(fakes, small, monkeypatch):
    graph = fakes(2, config=HINTED, loader=lambda: small.loader(batch_size=50))
    monkeypatch.setattr(Cadence, "counts", lambda cadence, left: [0, 1])
    alone = small.build()
    optimizer = small.sgd(alone.parameters())

    def loss(model, output, batch):
        return small.square(output, batch) + sum(p.square().sum() for p in model.parameters())

    (batch,) = graph.epoch(0)
    assert batch.rows == (0, 50)
    loss(graph, graph.forward_batch(batch), batch).backward()
    graph.step()
    loss(alone, alone(batch["x"]), batch).backward()
    optimizer.step()
    for ours, wanted in zip(graph.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)


def test_it_is_turned_off_and_on(fakes, small):
    graph = fakes(2, config=HINTED)
    graph.configure_el_che(DdpConfig(max_anchor=0))
    assert not graph.has_el_che
    assert next(iter(graph.epoch(0))).rows == (4, 4)
    graph.configure_el_che(HINTED)
    assert next(iter(graph.epoch(0))).rows == (8, 16)
    assert graph.chunk_ratios == pytest.approx((1 / 3, 2 / 3))
    graph.configure_el_che(ElCheConfig.nccl_cadence(anchor=1, max_anchor=1))
    assert next(iter(graph.epoch(0))).rows == (8, 8)
    with pytest.raises(ConfigError, match="of a dict: expected a DdpConfig or an ElCheConfig"):
        graph.configure_el_che({})


def test_any_loader_deals_its_batches(fakes, small):
    class Plain:
        names = ("x", "y")

        def epoch(self, number):
            for start in range(0, 48, 8):
                yield {"x": small.x[start : start + 8], "y": small.y[start : start + 8]}

    graph = fakes(2, loader=Plain, config=HINTED)
    found = turns(graph, 0, small.square)
    assert found[0][:2] == ((8, 16), [1, 2])
    assert sum(sum(rows) for rows, _, _ in found) == 48


def test_on_one_device_only_the_limit_of_gradients_means_something(fakes, small):
    graph = fakes(1, lambda ps: torch.optim.SGD(ps, lr=1.0), loader=None)
    graph.configure_el_che(DdpConfig(speed_hint=(0, 2.0), max_grad_norm=0.01))
    assert not graph.has_el_che
    before = [p.detach().clone() for p in graph.parameters()]
    graph(small.x).square().mean().backward()
    graph.step()
    moved = sum(
        (a - b).square().sum() for a, b in zip(graph.parameters(), before, strict=True)
    ).sqrt()
    assert moved.item() == pytest.approx(0.01, rel=1e-3)


def test_the_timeline_hears_of_each_exchange(fakes, small):
    class Events:
        def __init__(self):
            self.kinds = []

        def event(self, event):
            self.kinds.append(event.kind)

    events = Events()
    graph = fakes(2, config=DdpConfig(max_anchor=0, timeline=events))
    small.train(graph, epochs=1)
    assert events.kinds == ["sync_start", "sync_end"] * 7
