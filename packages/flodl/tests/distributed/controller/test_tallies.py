import json
import math

from flodl.distributed.controller.ledger import Committed
from flodl.distributed.controller.tallies import EpochTally, Identified, add_window
from flodl.distributed.protocol.messages import WindowReport
from flodl.distributed.protocol.values import Telemetry

WHO = {
    uid: Identified(uid=uid, number=number, host=f"h{number}", device_index=number + 4)
    for number, uid in enumerate("ab")
}


def report(loss, wall_ms=100.0, **telemetry):
    return WindowReport(
        window=1,
        trained=(),
        steps=10,
        wall_ms=wall_ms,
        telemetry=Telemetry(loss=loss, lr=0.1, **telemetry),
    )


def committed(**by_epoch):
    parts = {int(name[1:]): part for name, part in by_epoch.items()}
    return Committed(
        batches=sum(batches for batches, _ in parts.values()),
        samples=sum(samples for _, samples in parts.values()),
        by_epoch=parts,
    )


def metrics(tally):
    return tally.metrics(WHO, now=7.0, world_size=2, generation=3, anchor=10, phase="stable")


def test_means_are_weighted_by_samples():
    tallies = {0: EpochTally(epoch=0, started_at=5.0, windows=2, divergence=0.01, lost=[1])}
    add_window(tallies, "b", report(4.0, scalars={"acc": 0.5}), committed(_0=(10, 20)))
    add_window(tallies, "a", report(1.0, scalars={"acc": 0.9}), committed(_0=(30, 60)))
    add_window(tallies, "a", report(2.0), committed(_0=(10, 20)))
    found = metrics(tallies[0])
    assert found.avg_loss == (4.0 * 20 + 1.0 * 60 + 2.0 * 20) / 100
    assert found.per_rank_loss == [1.25, 4.0]
    assert found.scalars["acc"] == (0.9 * 60 + 0.5 * 20) / 80
    assert found.per_rank_scalars == [{"acc": 0.9}, {"acc": 0.5}]
    assert (found.batches_processed, found.samples_processed) == (50, 100)
    assert found.per_rank_samples == [80, 20]
    assert found.per_rank_batch_share == [0.8, 0.2]
    assert found.per_rank_throughput == [0.4, 0.2]
    assert (found.epoch_ms, found.windows, found.generation) == (2000.0, 2, 3)
    assert (found.member_ids, found.rank_hosts) == ([0, 1], ["h0", "h1"])
    assert (found.device_indices, found.lost) == ([4, 5], [1])
    assert (found.lr, found.anchor, found.phase, found.divergence) == (0.1, 10, "stable", 0.01)


def test_a_window_that_reaches_into_two_epochs_is_shared_out():
    tallies = {epoch: EpochTally(epoch=epoch, started_at=0.0) for epoch in (0, 1)}
    add_window(tallies, "a", report(1.0), committed(_0=(3, 30), _1=(1, 10)))
    assert metrics(tallies[0]).per_rank_time_ms == [75.0]
    assert metrics(tallies[1]).per_rank_samples == [10]


def test_delivered_time_counts_where_it_was_measured():
    tallies = {0: EpochTally(epoch=0, started_at=0.0)}
    delivered = WindowReport(window=1, trained=(), steps=1, wall_ms=10.0, delivered_ms=15.0)
    add_window(tallies, "a", delivered, committed(_0=(1, 1)))
    found = metrics(tallies[0])
    assert (found.per_rank_time_ms, found.per_rank_compute_only_ms) == ([15.0], [10.0])


def test_an_epoch_without_losses_has_none():
    found = metrics(EpochTally(epoch=0, started_at=0.0))
    assert math.isnan(found.avg_loss)
    assert found.per_rank_loss == []


def test_saved_sums_go_on():
    tallies = {0: EpochTally(epoch=0, started_at=5.0)}
    add_window(tallies, "a", report(1.0, scalars={"acc": 0.9}), committed(_0=(30, 60)))
    state = json.loads(json.dumps(tallies[0].to_state()))
    assert metrics(EpochTally.from_state(state)) == metrics(tallies[0])
