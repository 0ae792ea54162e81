import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.controller.duties import (
    Duty,
    DutyDesk,
    abandon,
    due_after_epoch,
    due_after_window,
    elect,
)
from flodl.distributed.controller.settings import DutyRules
from flodl.distributed.protocol.messages import CallbackDone


def test_the_fastest_member_is_elected_and_stays():
    speeds = {"a": 20.0, "b": 10.0, "c": None}
    assert elect(["a", "b", "c"], speeds, None) == "b"
    assert elect(["a", "b", "c"], speeds, "a") == "a"
    assert elect(["a", "c"], speeds, "b") == "a"
    assert elect(["a", "b"], {}, None) == "a"
    assert elect([], speeds, "a") is None


def kinds(duties):
    return [(duty.kind, duty.stem) for duty in duties]


def test_evaluation_and_checkpoints_are_due_by_epoch():
    rules = DutyRules(eval_every=2, checkpoint_every=3, checkpoint_at_epochs=(5,), save_path="run")
    due = [kinds(due_after_epoch(rules, epoch, 7, is_last=epoch == 6)) for epoch in range(7)]
    assert due == [
        [],
        [("eval", "")],
        [("checkpoint", "run-epoch2")],
        [("eval", "")],
        [("checkpoint", "run-epoch4")],
        [("eval", ""), ("checkpoint", "run-epoch5")],
        [("eval", "")],
    ]


def test_checkpoints_may_follow_windows():
    rules = DutyRules(checkpoint_every_windows=5, save_path="run")
    assert kinds(due_after_window(rules, 0, 10)) == [("checkpoint", "run-window10")]
    assert due_after_window(rules, 0, 11) == []
    assert due_after_window(DutyRules(checkpoint_every_windows=5), 0, 10) == []


def done(part, value, samples):
    return CallbackDone(
        kind="eval", epoch=0, attempt=1, part=part, value={"loss": value}, samples=samples
    )


def test_parts_of_an_evaluation_are_weighted_by_samples():
    duty = Duty(kind="eval", epoch=0, version=1, parts=2)
    duty.done = {0: done(0, 1.0, 30), 1: done(1, 5.0, 10)}
    assert duty.is_done
    assert duty.values() == {"loss": 2.0}


def test_a_lost_member_leaves_its_duty_to_another():
    desk = DutyDesk(elected="a")
    duty = Duty(kind="eval", epoch=0, version=1, running={0: "a"})
    desk.running.append(duty)
    assert desk.busy == {"a"}
    assert abandon(desk, "b") == []
    abandon(desk, "a")
    (again,) = desk.waiting
    assert (again.attempt, again.failed, again.running) == (2, ["a"], {})
    assert (desk.elected, desk.running) == (None, [])


def test_what_ran_is_to_be_run_again_after_a_restart():
    desk = DutyDesk(elected="a", running=[Duty(kind="eval", epoch=3, version=1)])
    twin = DutyDesk.from_state(desk.to_state())
    assert [(duty.kind, duty.epoch) for duty in twin.waiting] == [("eval", 3)]
    assert twin.running == []


def test_durations_are_smoothed():
    desk = DutyDesk()
    desk.took("eval", 100.0)
    desk.took("eval", 200.0)
    assert desk.expected_ms["eval"] == pytest.approx(130.0)


@pytest.mark.parametrize(
    "options", [{"eval_every": 0}, {"checkpoint_every": 0}, {"policy_rank": -1}]
)
def test_rules_out_of_range_are_refused(options):
    with pytest.raises(ConfigError):
        DutyRules(**options)
