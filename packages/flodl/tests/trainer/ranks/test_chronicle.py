from types import SimpleNamespace

import pytest

from flodl.distributed.controller.commands import PublishWindow
from flodl.distributed.protocol.messages import CallbackDone
from flodl.trainer.ranks.chronicle import Chronicle


class Kept:
    def __init__(self):
        self.events = []

    def __call__(self, event, ago_ms):
        self.events.append((event.kind, dict(event.fields), ago_ms))

    def kinds(self):
        return [kind for kind, _, _ in self.events]

    def of(self, kind):
        return [fields for name, fields, _ in self.events if name == kind]


def window(number, epoch=0, **values):
    rows = {"a": {"steps": 4.0, "samples": 64.0}, "b": {"steps": 7.0, "samples": 112.0}}
    given = {"window_ms": 50.0, "reduce_ms": 8.0, "global_step": 11.0 * number, **values}
    return PublishWindow(window=number, epoch=epoch, values=given, per_member=rows)


def metrics(epoch):
    return SimpleNamespace(epoch=epoch, avg_loss=0.5, lr=0.1)


def test_an_average_ends_now_and_began_as_long_ago_as_it_took():
    kept = Kept()
    Chronicle(kept, on_cpu=True).window(window(1))
    assert kept.events == [
        ("epoch_start", {"epoch": 0}, 50.0),
        ("cpu_avg_start", {}, 8.0),
        ("cpu_avg_end", {"ms": 8.0}, 0.0),
    ]
    other = Kept()
    Chronicle(other, on_cpu=False).window(window(1))
    assert other.kinds() == ["epoch_start", "sync_start", "sync_end"]


def test_a_window_without_an_average_tells_none():
    kept = Kept()
    Chronicle(kept, on_cpu=True).window(window(1, reduce_ms=0.0))
    assert kept.kinds() == ["epoch_start"]


def test_the_anchor_is_told_when_it_moves():
    kept = Kept()
    chronicle = Chronicle(kept, on_cpu=True)
    for number, anchor in enumerate((8.0, 8.0, 12.0), 1):
        chronicle.window(window(number, anchor=anchor))
    assert kept.of("anchor") == [{"from": 8, "to": 12}]


def test_a_nudge_is_told_with_its_factor_and_where_the_anchor_was():
    kept = Kept()
    chronicle = Chronicle(kept, on_cpu=True)
    chronicle.window(window(1, anchor=8.0))
    chronicle.window(window(2, anchor=4.0, nudged_by=0.5, nudged_from=8.0))
    chronicle.window(window(3, anchor=4.0))
    assert kept.of("meta_nudge") == [{"factor": 0.5, "from": 8, "to": 4}]
    assert kept.of("anchor") == [{"from": 8, "to": 4}]


def test_a_nudge_that_finds_the_anchor_at_its_least_moves_nothing():
    kept = Kept()
    Chronicle(kept, on_cpu=True).window(window(1, anchor=1.0, nudged_by=0.5, nudged_from=1.0))
    assert kept.of("meta_nudge") == [{"factor": 0.5, "from": 1, "to": 1}]
    assert kept.of("anchor") == []


def test_what_the_guard_measured_is_told_by_its_own_names():
    kept = Kept()
    chronicle = Chronicle(kept, on_cpu=True)
    chronicle.window(window(1))
    chronicle.window(window(2, epoch=1, **{"guard.trend_divergence": 0.25}))
    assert kept.of("guard_telemetry") == [
        {"epoch": 1, "step": 22, "values": {"trend_divergence": 0.25}}
    ]


def test_divergence_comes_with_what_each_rank_told_and_is_summed_up_at_the_end_of_the_epoch():
    kept = Kept()
    chronicle = Chronicle(kept, on_cpu=True)
    for number, found in enumerate((0.2, 0.6, 0.4), 1):
        chronicle.drifted(1, found)
        chronicle.drifted(0, found / 2)
        chronicle.window(window(number, divergence=found, lambda_raw=-0.1, lambda_ema=0.3))
    first = kept.of("div")[0]
    assert first == {
        "d": 0.2, "k_used": 4, "k_max": 7, "step": 11, "deltas": [0.1, 0.2],
        "epoch": 0, "lambda": -0.1, "lambda_ema": 0.3,
    }  # fmt: skip
    chronicle.epoch_ended(metrics(0))
    assert kept.of("epoch_end") == [{"epoch": 0, "loss": 0.5, "lr": 0.1}]
    (summed,) = kept.of("div_epoch")
    assert (summed["d_min"], summed["d_max"], summed["d_end"]) == (0.2, 0.6, 0.4)
    assert (summed["d_mean"], summed["sync_count"], summed["k_end"]) == (
        pytest.approx(0.4),
        3,
        7,
    )
    chronicle.window(window(4, epoch=1))
    chronicle.epoch_ended(metrics(1))
    assert len(kept.of("div_epoch")) == 1


def test_what_a_window_told_of_divergence_does_not_count_for_the_next():
    kept = Kept()
    chronicle = Chronicle(kept, on_cpu=True)
    chronicle.drifted(0, 0.9)
    chronicle.window(window(1))
    chronicle.window(window(2, divergence=0.1))
    assert kept.of("div")[0]["deltas"] == []


def test_evaluations_checkpoints_losses_and_waits_are_told():
    kept = Kept()
    chronicle = Chronicle(kept, on_cpu=True, checkpoint_path="/runs/model")
    chronicle.callback_done(CallbackDone(kind="eval", epoch=1, attempt=1, ms=30.0))
    chronicle.callback_done(CallbackDone(kind="checkpoint", epoch=1, attempt=1, ms=5.0))
    chronicle.callback_done(CallbackDone(kind="eval", epoch=2, attempt=1, ok=False, ms=9.0))
    chronicle.throttled(2)
    chronicle.lost(1)
    chronicle.missed("commit")
    chronicle.fell_back("the step reads a value")
    assert [(kind, fields) for kind, fields, _ in kept.events] == [
        ("eval", {"ms": 30.0}),
        ("checkpoint", {"ms": 5.0, "path": "/runs/model"}),
        ("throttle", {"rank": 2}),
        ("rank_lost", {"rank": 1}),
        ("lost_broadcast", {"control": "commit", "failures": 1}),
        ("capture", {"ok": False, "reason": "the step reads a value"}),
    ]
