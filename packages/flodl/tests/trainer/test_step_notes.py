import torch
from torch import nn

from flodl import Monitor, Trainer
from flodl.data import TensorDataSet
from flodl.engine.fallback import CaptureReason, ReasonCode
from flodl.engine.stats import SignatureMode, StepStats
from flodl.records import RecordTree
from flodl.trainer.step_notes import StepNotes


def stats(*modes):
    return StepStats(
        captured=0, captured_fwd_bwd=0, eager=0, captures=0, recaptures=(), host_us=None,
        device_ms=None, pool_bytes=0, signatures=modes,
    )  # fmt: skip


def lines(tree):
    records, leave = tree.follow(lambda records: None)
    leave()
    return [r.body()["text"] for r in records if r.kind == "log"]


def test_a_fallback_is_a_line_and_an_alert_and_told_once():
    tree, notes = RecordTree(), StepNotes()
    reason = CaptureReason.of(ReasonCode.HOST_SYNC, "the step reads a value", "train.py:3")
    captured = SignatureMode("x float32[4, 2]", "captured", None)
    eager = SignatureMode("x float32[3, 2]", "eager", reason)
    marked = []
    for _ in range(3):
        notes.tell(stats(captured, eager), tree, marked.append)
    (alert,) = tree.alerts()
    assert lines(tree)[0] == "steps on x float32[4, 2]: captured"
    assert len(lines(tree)) == 2
    assert [(event.kind, event.fields["ok"]) for event in marked] == [
        ("capture", True),
        ("capture", False),
    ]
    assert "host_sync" in marked[1].fields["reason"]
    assert "host_sync: the step reads a value at train.py:3" in alert["detail"]


def test_a_run_on_the_cpu_says_how_its_steps_ran_and_raises_no_alert():
    monitor = Monitor(2, progress="none")
    x = torch.ones(8, 1)
    (
        Trainer.builder(
            lambda device: nn.Linear(1, 1),
            lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            lambda model, batch: model(batch[0]).square().mean(),
        )
        .dataset(TensorDataSet(x, x))
        .batch_size(4)
        .num_epochs(2)
        .devices(["cpu"])
        .monitor(monitor)
        .run()
    )
    (line,) = lines(monitor.plane.board.tree)
    assert line.startswith("steps on any: eager, no_gpu")
    assert monitor.plane.board.tree.alerts() == []
