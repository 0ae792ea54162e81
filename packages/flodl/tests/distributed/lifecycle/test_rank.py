"""The table of a rank's machine, and single steps of it."""

import json
import random

import pytest

from flodl.distributed.lifecycle import rank_events as r
from flodl.distributed.lifecycle.rank import LOCAL, MESSAGES, RankMachine, outcome
from flodl.distributed.lifecycle.rank_state import Activity, RankState
from flodl.distributed.protocol.messages import (
    WIRE_NAMES,
    Abort,
    Accept,
    AtBarrier,
    Bye,
    CallbackDone,
    Commit,
    FormAck,
    Lease,
    LeaseAck,
    Nack,
    Quiesced,
    RankError,
    Ready,
    Reconfigure,
    Reduced,
    ReduceGo,
    Resume,
    RunCallback,
    StateSync,
    Synced,
    SyncNow,
    Throttle,
    WindowReport,
    World,
)
from flodl.distributed.protocol.values import Place, Target

UID = "h/g/0"
DOWN = """
    accept world state_sync reconfigure sync_now lease reduce_go commit throttle resume
    run_callback stop nack bye abort
""".split()


def place(uid=UID, rank=0, **options):
    return Place(uid=uid, rank=rank, number=rank, host="h", is_leader=True, **options)


def world(gen=1, *, is_new=True):
    return World(
        gen=gen,
        members=(place(is_new=is_new), place("h/g/1", 1)),
        topology="two_level",
        nonce="n",
        timeouts={},
        version=0,
    )


def sync(gen=1, version=0, receivers=()):
    return StateSync(
        gen=gen,
        source="donor",
        donor="h/g/1",
        receivers=receivers,
        version=version,
        parts=("params",),
        global_step=0,
        lr_scale=1.0,
    )


def lease(lease_id=1, low=0, high=40):
    return Lease(lease_id=lease_id, epoch=0, data_epoch=0, ranges=((low, high),), batch_size=8)


class Driver:
    """A machine with a clock, and the commands of the last event."""

    def __init__(self):
        self.machine, self.now = RankMachine(UID, 0), 0.0

    def __call__(self, event):
        self.now += 0.001
        return self.machine.handle(event, self.now)

    def hear(self, message, gen=None):
        return self(
            r.FromController(gen=self.machine.rank.gen if gen is None else gen, message=message)
        )

    def batch(self, lease_id=1, ms=10.0, samples=8, **options):
        return self(r.BatchDone(lease_id=lease_id, samples=samples, wall_ms=ms, **options))


def ready():
    driver = Driver()
    driver.hear(Accept(members=(), gen=1, run_nonce="n"))
    driver(r.Built(build_ms=1.0))
    driver.hear(world(), gen=1)
    driver(r.Formed(gen=1, ok=True, ms=1.0))
    driver.hear(sync())
    driver(r.StateTaken(gen=1))
    assert driver.machine.state is RankState.READY
    return driver


def training(target=None, payload="params"):
    driver = ready()
    driver.hear(lease())
    driver.hear(SyncNow(window=1, payload=payload, target=target or Target(steps=3)))
    assert driver.machine.state is RankState.TRAINING
    return driver


def sent(commands):
    return [command.message for command in commands if isinstance(command, r.Send)]


def at_barrier(payload="params"):
    driver = training(payload=payload)
    for _ in range(3):
        commands = driver.batch()
    return driver, commands


def test_a_rank_comes_in_step_by_step():
    driver = Driver()
    (build,) = driver.hear(Accept(members=(), gen=1, run_nonce="n"))
    assert isinstance(build, r.Build)
    (message,) = sent(driver(r.Built(build_ms=2.0)))
    assert message == Ready(incarnation=0, build_ms=2.0)
    commands = driver.hear(world(), gen=1)
    assert [type(command) for command in commands] == [r.DropLeases, r.FormGroups]
    assert sent(driver(r.Formed(gen=1, ok=True, ms=3.0))) == [FormAck(gen=1, ok=True, ms=3.0)]
    assert [type(command) for command in driver.hear(sync())] == [r.TakeState]
    assert sent(driver(r.StateTaken(gen=1))) == [Synced(gen=1, version=0)]
    assert not driver.machine.may_train


def test_a_window_ends_at_its_count_and_reports_what_was_trained():
    driver, commands = at_barrier()
    assert driver.machine.state is RankState.BARRIER
    assert commands[-1] == r.MeasureWindow(window=1, payload="params", samples=24)
    report, barrier = sent(driver(r.WindowMeasured(window=1, payload_hash="x")))
    assert (report.steps, report.wall_ms, report.trained[0].samples) == (3, 30.0, 24)
    assert isinstance(report, WindowReport)
    assert barrier == AtBarrier(window=1, samples=24, is_finite=True, payload_hash="x")
    assert not driver.machine.may_train


def test_the_next_lease_is_asked_for_once_half_of_the_last_is_trained():
    driver = training(Target(steps=99))
    assert sent(driver.batch()) == []
    assert sent(driver.batch()) == []
    assert sent(driver.batch()) == [LeaseAck(lease_id=1, batches=3)]
    assert sent(driver.batch()) == []
    assert sent(driver.hear(lease(2, 40, 72))) == []
    assert sent(driver.batch()) == []
    assert sent(driver.batch(2)) == []
    assert sent(driver.batch(2)) == [LeaseAck(lease_id=2, batches=2)]


def test_the_next_lease_is_on_its_way_while_the_last_batch_is_trained():
    driver = training(Target(steps=99))
    for _ in range(4):
        driver.batch()
    assert sent(driver.hear(lease(2, 40, 48))) == []  # two batches are left
    assert sent(driver.batch()) == [LeaseAck(lease_id=2, batches=0)]
    assert sent(driver.hear(lease(3, 48, 56))) == []
    assert sent(driver.batch(2)) == [LeaseAck(lease_id=3, batches=0)]
    assert sent(driver.batch(3)) == []
    assert sent(driver.hear(lease(4, 56, 64))) == [LeaseAck(lease_id=4, batches=0)]


def test_wall_time_ends_a_window_at_the_nearest_boundary():
    driver = training(Target(wall_ms=34.0))
    for _ in range(2):
        driver.batch()
    assert driver.machine.state is RankState.TRAINING
    driver.batch()
    assert driver.machine.state is RankState.BARRIER
    slow = training(Target(wall_ms=36.0))
    for _ in range(3):
        slow.batch()
    assert slow.machine.state is RankState.TRAINING


def test_a_rank_without_leases_waits_unless_nothing_comes_any_more():
    driver = training(Target(steps=99))
    for _ in range(5):
        driver.batch()
    assert driver.machine.activity is Activity.IDLE
    driver.hear(SyncNow(window=1, payload="params", target=Target(steps=99, at_end=True)))
    assert driver.machine.state is RankState.BARRIER


def go(**options):
    return ReduceGo(
        window=1, total_weight=48.0, gamma=1.0, participants=2, deadline=30.0, **options
    )


def commit(target=None, window=1):
    return Commit(
        window=window,
        global_step=6,
        next_window=window + 1,
        target=target,
        payload="params",
        anchor=10,
        lr_scale=1.0,
    )


def test_an_average_is_taken_over_before_the_next_window_begins():
    driver, _ = at_barrier()
    driver(r.WindowMeasured(window=1))
    (start,) = driver.hear(go())
    assert (start.weight, driver.machine.state) == (0.5, RankState.REDUCING)
    (message,) = sent(driver(r.ReduceDone(window=1, ms=5.0)))
    assert message == Reduced(window=1, ms=5.0)
    assert driver.machine.state is RankState.REDUCING
    (apply,) = driver.hear(commit(Target(steps=2)))
    assert isinstance(apply, r.ApplyCommit)
    assert driver.machine.may_train
    assert driver.machine.rank.version == 1


def test_a_rank_at_the_barrier_trains_on_when_the_window_ends_later():
    driver, _ = at_barrier()
    driver(r.WindowMeasured(window=1, payload_hash="x"))
    assert sent(driver.hear(SyncNow(window=1, payload="params", target=Target()))) == []
    assert driver.machine.may_train
    driver.batch()
    assert driver.machine.state is RankState.TRAINING
    commands = driver.hear(SyncNow(window=1, payload="params", target=Target(steps=0)))
    assert commands[-1] == r.MeasureWindow(window=1, payload="params", samples=32)
    report, _ = sent(driver(r.WindowMeasured(window=1, payload_hash="x")))
    assert (report.steps, report.wall_ms, report.trained[0].samples) == (4, 40.0, 32)
    assert driver.machine.state is RankState.BARRIER


def test_a_rank_comes_to_the_barrier_again_when_it_is_told_what_it_has_reached():
    driver, _ = at_barrier()
    driver(r.WindowMeasured(window=1))
    driver.hear(SyncNow(window=1, payload="params", target=Target(steps=0)))
    assert driver.machine.state is RankState.BARRIER
    assert len(sent(driver(r.WindowMeasured(window=1)))) == 2
    driver.hear(go())
    assert driver.machine.state is RankState.REDUCING
    assert driver.hear(SyncNow(window=1, payload="params", target=Target())) == []
    assert driver.machine.state is RankState.REDUCING


def test_a_failed_average_waits_for_a_new_generation():
    driver, _ = at_barrier()
    driver(r.WindowMeasured(window=1))
    driver.hear(go())
    (message,) = sent(driver(r.ReduceFailed(window=1, error="reset")))
    assert not message.ok
    assert driver.machine.state is RankState.REDUCING
    (quiesced,) = sent(driver.hear(Reconfigure(gen=2, reason="lost"), gen=2))
    assert (quiesced.version, quiesced.steps, quiesced.trained[0].samples) == (0, 3, 24)
    assert driver.machine.state is RankState.QUIESCED


def test_a_change_of_members_abandons_the_collective():
    driver, _ = at_barrier()
    driver(r.WindowMeasured(window=1))
    driver.hear(go())
    commands = driver.hear(Reconfigure(gen=2, reason="lost"), gen=2)
    assert isinstance(commands[0], r.AbandonReduce)
    assert isinstance(commands[1].message, Quiesced)
    assert driver(r.ReduceDone(window=1, ms=1.0)) == []
    assert driver.machine.rank.version == 0


def test_a_snapshot_is_averaged_while_training_goes_on():
    driver, commands = at_barrier("snapshot")
    assert commands[-1].payload == "snapshot"
    assert driver.machine.state is RankState.TRAINING
    assert not driver.machine.may_train  # no overshoot was allowed
    driver = training(Target(steps=2, overshoot=1), "snapshot")
    driver.batch()
    driver.batch()
    assert driver.machine.may_train
    driver.batch()
    assert not driver.machine.may_train
    driver(r.WindowMeasured(window=1))
    driver.hear(go())
    driver(r.ReduceDone(window=1, ms=1.0))
    driver.hear(commit(Target(steps=2)))
    assert driver.machine.rank.work.tally.steps == 1


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_rank_that_is_late_gives_nothing_and_keeps_what_it_trained(has_snapshot):
    driver = training(Target(steps=2, overshoot=1), "snapshot")
    driver.batch()
    if has_snapshot:  # its report and the controller's decision have crossed
        driver.batch()
        driver(r.WindowMeasured(window=1))
    (start,) = driver.hear(go(late=(UID,)))
    assert (type(start), start.weight) == (r.StartReduce, 0.0)
    commands = driver.batch()  # no second snapshot while an average is made
    assert not [command for command in commands if isinstance(command, r.MeasureWindow)]
    driver(r.ReduceDone(window=1, ms=1.0))
    commands = driver.hear(commit(Target(steps=2)))
    assert driver.machine.rank.work.tally.steps == 2 + has_snapshot
    measure = next(command for command in commands if isinstance(command, r.MeasureWindow))
    assert measure.samples == 8 * (2 + has_snapshot)
    (report, _) = sent(driver(r.WindowMeasured(window=2)))
    assert [item.samples for item in report.trained] == [8 * (2 + has_snapshot)]


def test_throttling_stops_batches_until_the_commit():
    driver = training()
    driver.hear(Throttle(reason="ahead"))
    assert driver.machine.activity is Activity.THROTTLED
    assert not driver.machine.may_train
    driver.hear(Resume(reason="caught up"))
    assert driver.machine.may_train


def test_the_window_waits_for_a_callback():
    driver = training(Target(steps=1))
    callback = RunCallback(kind="eval", epoch=0, version=1)
    assert driver.hear(callback) == [r.ExecuteCallback(callback=callback)]
    assert driver.machine.activity is Activity.CALLBACK
    done = CallbackDone(kind="eval", epoch=0, attempt=1)
    assert sent(driver(r.CallbackEnded(done=done))) == [done]
    assert driver.machine.may_train


def test_gradient_steps_go_on_without_leases_and_report_on_the_way():
    driver = training(Target(steps=60), "grads")
    for _ in range(5):
        driver.batch()
    assert driver.machine.may_train
    measured = []
    for _ in range(50):
        measured += driver.batch(lease_id=0, samples=0)
    assert [type(command) for command in measured] == [r.MeasureWindow]
    (report,) = sent(driver(r.WindowMeasured(window=1)))
    assert (report.steps, report.trained[0].samples) == (50, 40)


def test_gradient_steps_that_all_ranks_leave_out_are_told_once_and_again_at_the_end():
    driver = training(Target(steps=60), "grads")
    for number in range(50):
        driver.batch(lease_id=0, samples=0, left_out=number in (0, 1, 48))
    (report,) = sent(driver(r.WindowMeasured(window=1)))
    assert report.left_out == ((0, 2), (48, 49))
    for number in range(3):
        driver.batch(lease_id=0, samples=0, left_out=2 * (number == 2))  # a step of two batches
    saved = RankMachine.from_state(json.loads(json.dumps(driver.machine.to_state())))
    assert saved.to_state() == driver.machine.to_state()
    (quiesced,) = sent(driver.hear(Reconfigure(gen=2, reason="join", lost=(), joined=()), gen=2))
    assert quiesced.left_out == ((0, 2), (48, 49), (51, 53))


def test_gradient_steps_are_told_again_to_another_controller_until_a_generation_forms():
    driver = training(Target(steps=60), "grads")
    for _ in range(5):
        driver.batch()
    order = Reconfigure(gen=2, reason="lost", lost=(), joined=())
    (first,) = sent(driver.hear(order, gen=2))
    assert (first.steps, first.trained[0].samples, len(first.leases)) == (5, 40, 1)
    assert sent(driver.hear(order, gen=2)) == [first]
    driver.hear(world(gen=2, is_new=False), gen=2)
    assert driver.machine.rank.work.leases == []
    assert driver.machine.rank.work.tally.steps == 0


def test_a_rank_stands_still_when_its_host_says_so_and_tells_it_later():
    driver = training()
    driver.batch()
    driver(r.LinkLost())
    assert driver.machine.may_train
    driver(r.HostLeaseExpired())
    assert driver.machine.state is RankState.ORPHANED
    (message,) = sent(driver(r.LinkRestored()))
    assert isinstance(message, Quiesced)


def test_a_leader_saves_the_consensus_when_the_controller_stays_away():
    driver, _ = at_barrier()
    driver(r.WindowMeasured(window=1))
    driver.hear(go())
    driver(r.ReduceDone(window=1, ms=1.0))
    driver(r.LinkLost())
    deadline = driver.machine.next_deadline()
    assert driver.machine.handle(r.Tick(), deadline - 1) == []
    assert driver.machine.handle(r.Tick(), deadline) == [r.SaveOrphan(version=1), r.Exit(code=76)]


@pytest.mark.parametrize(("kind", "code"), [("user", 1), ("cuda", 75)])
def test_an_exception_is_told_before_the_exit(kind, code):
    error = RankError(kind=kind, type_name="a:B", args=(), message="m", traceback="t")
    driver = training()
    assert driver(r.Raised(error=error)) == [r.Send(message=error, gen=1), r.Exit(code=code)]


def test_goodbye_comes_before_a_clean_exit():
    driver = training()
    commands = driver.hear(Bye())
    assert commands == [r.Send(message=Bye(), gen=1), r.Exit(code=0)]
    assert training().hear(Abort()) == [r.Exit(code=1)]


def test_messages_of_an_older_generation_do_nothing():
    driver = ready()
    driver.hear(world(2, is_new=False), gen=2)
    before = driver.machine.to_state()
    assert driver.hear(lease(), gen=1) == []
    assert driver.machine.to_state() == before


def test_a_message_that_does_not_fit_is_refused():
    (message,) = sent(Driver().hear(lease()))
    assert message == Nack(kind="lease", seq=0, reason="not expected while boot")


def test_saved_state_goes_on_where_it_was():
    import json

    driver, _ = at_barrier()
    twin = RankMachine.from_state(json.loads(json.dumps(driver.machine.to_state())))
    event = r.WindowMeasured(window=1)
    assert twin.handle(event, 1.0) == driver.machine.handle(event, 1.0)
    assert twin.to_state() == driver.machine.to_state()


def test_tables_name_every_message_that_comes_down():
    assert {WIRE_NAMES[kind] for kind in MESSAGES} == set(DOWN)


@pytest.mark.parametrize("state", list(RankState))
def test_every_state_has_an_outcome_for_every_event(state):
    has_ended = state in (RankState.DRAINING, RankState.EXITED)
    for kind in WIRE_NAMES:
        expected = {"ignored"} if has_ended else {"handled", "refused"}
        assert outcome(state, kind) in expected
    for kind in LOCAL:
        assert outcome(state, kind) in ({"ignored"} if has_ended else {"handled", "ignored"})
    assert (outcome(state, ReduceGo) == "handled") == (
        state in (RankState.TRAINING, RankState.BARRIER)
    )
    assert (outcome(state, r.BatchDone) == "handled") == (state is RankState.TRAINING)


EVENTS = [
    r.Built(build_ms=1.0),
    r.Formed(gen=1, ok=True, ms=1.0),
    r.StateTaken(gen=1),
    r.BatchDone(lease_id=1, samples=8, wall_ms=1.0),
    r.BatchDone(lease_id=9, samples=8, wall_ms=1.0, delivered_ms=2.0, is_first=True),
    r.WindowMeasured(window=1),
    r.ReduceDone(window=1, ms=1.0),
    r.ReduceFailed(window=1, error=""),
    r.CallbackEnded(done=CallbackDone(kind="eval", epoch=0, attempt=1)),
    r.LinkLost(),
    r.LinkRestored(),
    r.HostLeaseExpired(),
    r.Tick(),
]


@pytest.mark.parametrize("seed", range(30))
def test_random_events_never_raise(seed):
    rng = random.Random(seed)
    driver = Driver()
    for _ in range(200):
        gen = rng.randint(0, 2)
        window = rng.randint(0, 2)
        message = rng.choice(
            [
                Accept(members=(), gen=gen, run_nonce="n"),
                world(gen, is_new=rng.random() < 0.5),
                sync(gen, rng.randint(0, 2), (UID,)),
                Reconfigure(gen=gen, reason=""),
                SyncNow(
                    window=window,
                    payload=rng.choice(["params", "grads", "snapshot"]),
                    target=Target(steps=rng.randint(0, 3), at_end=rng.random() < 0.5),
                ),
                lease(rng.randint(1, 3)),
                go(),
                commit(Target(steps=1), window),
                Throttle(reason=""),
                RunCallback(kind="eval", epoch=0, version=1),
            ]
        )
        driver.hear(message, gen=gen) if rng.random() < 0.5 else driver(rng.choice(EVENTS))
        assert driver.machine.rank.commands == []
