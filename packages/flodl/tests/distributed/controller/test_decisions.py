"""Single decisions of the controller: who may join, when to start, who is given up."""

import dataclasses
import json

import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.config import STABLE, ElasticConfig, ElCheConfig, Timeouts, nudge_down
from flodl.distributed.controller.commands import (
    Finish,
    Persist,
    RaiseAlert,
    SaveKept,
    ToHost,
    ToMember,
    ToMembers,
    WriteDeath,
)
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import (
    AbortRequested,
    FromHost,
    FromMember,
    LauncherBack,
    LauncherLost,
    StartRequested,
    StopRequested,
    Tick,
)
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.run import Ending, RunState
from flodl.distributed.controller.settings import DutyRules, Identity, JoinRules, RunSettings
from flodl.distributed.protocol.messages import (
    Abort,
    Accept,
    AtBarrier,
    Beat,
    Commit,
    Fence,
    Fenced,
    FormAck,
    Hello,
    Lease,
    LeaseAck,
    Progress,
    Quiesced,
    RankError,
    RankExit,
    Ready,
    Reconfigure,
    Reduced,
    ReduceGo,
    Reject,
    RunCallback,
    StateSync,
    Synced,
    SyncNow,
    Throttle,
    WindowReport,
    World,
)
from flodl.distributed.protocol.values import (
    Device,
    Held,
    Offer,
    RankProgress,
    Target,
    Trained,
    Versions,
)

VERSIONS = Versions(flodl="0.1.0", torch="2.11.0", python="3.11.7", nccl="2.28.9")
A, B, C = "h0/a/0", "h0/b/0", "h1/c/0"


def settings(**options):
    return RunSettings(
        **{
            "plan": WorkPlan(samples=8000, batch_size=8, num_epochs=1),
            "elche": ElCheConfig.cpu_cadence(),
            "nonce": "run",
            "join": JoinRules(least=2, target=2),
        }
        | options
    )


class Driver:
    """A controller with a clock; keeps what the last event gave."""

    def __init__(self, **options):
        self.controller, self.now = Controller(settings(**options)), 0.0
        self.given = []

    @property
    def run(self):
        return self.controller.run

    def __call__(self, event, after=0.01):
        self.now += after
        self.given = self.controller.handle(event, self.now)
        return self.given

    def tick(self, after):
        """Let time pass in steps, while hosts stay alive."""
        given = []
        while after > 0:
            step = min(after, 5.0)
            after -= step
            for host in sorted(self.run.roster.hosts):
                self(FromHost(host=host, gen=0, message=Beat(monotonic_ms=0, acked_seq=0)), 0)
                given += self.given
            given += self(Tick(), step)
        self.given = given
        return given

    def host(self, host, message, after=0.01):
        return self(FromHost(host=host, gen=self.run.gen, message=message), after)

    def rank(self, uid, message):
        return self(FromMember(uid=uid, gen=self.run.gen, message=message))

    def all(self, make):
        for uid in self.run.world:
            self.rank(uid, make(uid))

    def hello(self, *uids, **options):
        return self.host(uids[0].split("/")[0], hello(*uids, **options))

    def ready(self, *uids, incarnation=0):
        for uid in uids:
            self.rank(uid, Ready(incarnation=incarnation, build_ms=1.0))

    def form(self):
        gen = self.run.gen
        self.all(lambda uid: FormAck(gen=gen, ok=True, ms=1.0))
        self.all(lambda uid: Synced(gen=gen, version=self.run.version))

    def quiesce(self, **options):
        gen = self.run.gen
        for uid in sorted(self.run.recovery.awaiting):
            answer = {"version": self.run.version, "steps": 0, "trained": ()} | options
            self.rank(uid, Quiesced(gen=gen, **answer))

    def window(self, samples=80, **options):
        number = self.run.last_window
        for uid in self.run.world:
            trained = tuple(
                Trained(lease_id=work.lease_id, batches=10, samples=min(work.samples, samples))
                for work in self.run.ledger.held(uid)[:1]
            )
            self.rank(uid, WindowReport(window=number, trained=trained, steps=10, wall_ms=100.0))
            arrival = {"samples": samples, "is_finite": True, "payload_hash": "x"}
            self.rank(uid, AtBarrier(window=number, **arrival | options))
        return number

    def sent(self, kind):
        found = []
        for command in self.given:
            message = getattr(command, "message", None)
            if isinstance(message, kind):
                found.append(message)
        return found

    def alerts(self):
        return [command.code for command in self.given if isinstance(command, RaiseAlert)]


def hello(*uids, incarnation=0, held=None, **options):
    offers = tuple(
        Offer(uid=uid, incarnation=incarnation, device=Device(uuid=uid, name="cpu"), held=held)
        for uid in uids
    )
    given = {"versions": VERSIONS, "proto": 1} | options
    return Hello(host=uids[0].split("/")[0] if uids else "h0", offers=offers, **given)


def training(*uids, **options):
    uids = uids or (A, B)
    driver = Driver(**{"join": JoinRules(least=len(uids), target=len(uids))} | options)
    for uid in uids:
        driver.hello(uid)
    driver.ready(*uids)
    driver.form()
    assert driver.controller.state is RunState.TRAINING
    return driver


IDENTITY = Identity(versions=VERSIONS, vendor="nvidia", model_sig="m1", dataset_sig="d1")
SAME = {"vendor": "nvidia", "model_sig": "m1", "dataset_sig": "d1"}


@pytest.mark.parametrize(
    ("options", "code", "kind", "is_retryable"),
    [
        ({"proto": 2}, 4426, "version_skew", False),
        ({"versions": dataclasses.replace(VERSIONS, flodl="0.2.0")}, 4426, "version_skew", False),
        ({"versions": dataclasses.replace(VERSIONS, nccl="2.27.1")}, 4426, "nccl_skew", False),
        ({"vendor": "amd"}, 4426, "vendor_mix", False),
        ({"model_sig": "m2"}, 4426, "model_mismatch", False),
        ({"dataset_sig": "d2"}, 4426, "dataset_mismatch", False),
        ({"run_nonce": "other"}, 4426, "other_run", True),
    ],
)
def test_a_host_that_does_not_fit_is_told_both_values(options, code, kind, is_retryable):
    driver = Driver(identity=IDENTITY, elche=ElCheConfig.nccl_cadence())
    driver.hello(A, **SAME | options)
    (reject,) = driver.sent(Reject)
    assert (reject.code, reject.kind, reject.is_retryable) == (code, kind, is_retryable)
    assert reject.uids == (A,)
    assert not driver.run.roster.members


def test_small_differences_are_let_in_with_a_warning():
    driver = Driver(identity=IDENTITY)
    other = dataclasses.replace(VERSIONS, torch="2.11.1", python="3.12.0", nccl="2.27.0")
    driver.hello(A, **SAME | {"versions": other, "vendor": "amd"})
    assert driver.sent(Accept)
    assert driver.alerts() == ["version_differs", "version_differs"]


@pytest.mark.parametrize("count", [0, 257])
def test_offers_out_of_range_are_malformed(count):
    driver = Driver()
    driver.host("h0", hello(*(f"h0/g{number}/0" for number in range(count))))
    (reject,) = driver.sent(Reject)
    assert (reject.code, reject.kind) == (4400, "malformed")


def test_a_member_that_is_alive_is_not_replaced():
    driver = training()
    driver.hello(A)
    (reject,) = driver.sent(Reject)
    assert (reject.code, reject.kind) == (4409, "duplicate_member")
    assert driver.controller.state is RunState.TRAINING


def test_a_member_that_says_hello_again_is_the_same_one():
    driver = training()
    driver.hello(A, B, held=Held(gen=1, version=0))
    assert driver.sent(Accept)
    assert driver.controller.state is RunState.TRAINING


def test_no_more_than_max_ranks_are_let_in():
    driver = training(elastic=ElasticConfig(max_ranks=2))
    driver.hello(C)
    assert driver.sent(Reject)[0].kind == "full"


def test_nobody_is_let_in_later_where_rejoining_is_off():
    driver = training(elastic=ElasticConfig(rejoin=False))
    driver.hello(C)
    assert driver.sent(Reject)[0].kind == "not_elastic"


def test_numbers_are_given_in_order_and_never_again():
    driver = training(A, B, elastic=ElasticConfig(grow_interval=0.001))
    driver.host("h0", RankExit(uid=A, incarnation=0, code=None, signal=9))
    driver.hello(C)
    driver.hello(A, incarnation=1)
    numbers = {member.uid: member.number for member in driver.run.roster}
    assert numbers == {A: 0, B: 1, C: 2}


def test_the_run_starts_at_its_target():
    driver = Driver(join=JoinRules(least=1, target=2))
    driver.hello(A)
    driver.ready(A)
    assert driver.controller.state is RunState.WAITING
    driver.hello(B)
    driver.ready(B)
    assert driver.controller.state is RunState.FORMING


def test_a_quorum_waits_for_the_window_and_after_it_for_nobody():
    driver = Driver(join=JoinRules(least=1))
    driver.hello(A)
    driver.ready(A)
    driver.tick(299)
    assert driver.controller.state is RunState.WAITING
    driver.tick(2)
    assert driver.controller.state is RunState.FORMING
    late = Driver(join=JoinRules(least=1))
    late.hello(A)
    late.tick(150)
    late.tick(29)
    late.tick(130)
    assert late.controller.state is RunState.WAITING
    late.hello(B)
    late.ready(B)
    assert late.controller.state is RunState.FORMING


def test_nobody_waits_longer_than_the_cap():
    driver = Driver(join=JoinRules(least=2))
    driver.hello(A)
    driver.ready(A)
    driver.tick(601)
    assert driver.controller.state is RunState.FAILED
    (finish,) = [command for command in driver.given if isinstance(command, Finish)]
    assert A in finish.reason


def test_a_manual_start_waits_to_be_told():
    driver = Driver(join=JoinRules(least=2, start="manual"))
    driver(StartRequested())
    assert driver.alerts() == ["start_refused"]
    driver.hello(A, B)
    driver.ready(A, B)
    assert driver.controller.state is RunState.STAGING
    driver(StartRequested())
    assert driver.controller.state is RunState.FORMING


def test_formation_names_ranks_leaders_and_who_is_new():
    driver = Driver(join=JoinRules(least=3, target=3))
    driver.hello(A, B)
    driver.hello(C)
    driver.ready(C, A, B)
    world = driver.sent(World)[-1]
    rows = [(p.uid, p.rank, p.number, p.is_leader, p.is_new) for p in world.members]
    assert rows == [(A, 0, 0, True, True), (B, 1, 1, False, True), (C, 2, 2, True, True)]
    assert (world.gen, world.topology, world.version) == (1, "two_level", 0)
    assert world.timeouts["dead"] == 30
    for uid in (A, B, C):
        driver.rank(uid, FormAck(gen=1, ok=True, ms=1.0))
    (sync,) = driver.sent(StateSync)
    assert (sync.source, sync.donor, sync.receivers) == ("donor", A, (B, C))


@pytest.mark.parametrize(
    ("config", "topology"),
    [
        (ElCheConfig.nccl_cadence(), "flat"),
        (ElCheConfig.nccl_sync(collective="gloo"), "two_level"),
        (ElCheConfig.nccl_sync(collective="gloo", hierarchy="flat"), "flat"),
        (ElCheConfig.cpu_async(), "two_level"),
    ],
)
def test_averages_go_over_one_group_with_nccl_only(config, topology):
    driver = Driver(elche=config)
    driver.hello(A, B)
    driver.ready(A, B)
    assert driver.sent(World)[-1].topology == topology


def test_a_member_that_does_not_form_is_fenced_and_the_rest_goes_on():
    driver = Driver()
    driver.hello(A, B)
    driver.ready(A, B)
    driver.rank(A, FormAck(gen=1, ok=True, ms=1.0))
    driver.tick(61)
    assert driver.sent(Fence) == [Fence(uid=B, incarnation=0, deadline=5.0)] * len(
        driver.sent(Fence)
    )
    driver.host("h0", Fenced(uid=B, incarnation=0))
    driver.quiesce()
    assert (driver.controller.state, driver.run.world) == (RunState.FORMING, (A,))


def test_five_vain_formations_end_the_run():
    driver = Driver()
    driver.hello(A, B)
    driver.ready(A, B)
    for _ in range(5):
        driver.rank(A, FormAck(gen=driver.run.gen, ok=False, ms=1.0, error="refused"))
        driver.quiesce()
    assert driver.controller.state is RunState.FAILED


def test_a_window_opens_with_a_target_and_leases_for_all():
    driver = training()
    assert driver.run.window.targets[A].steps == 10
    leased = {uid: driver.run.ledger.untrained_batches(uid) for uid in (A, B)}
    assert leased == {A: 50, B: 50}


def test_the_collective_starts_when_everyone_is_at_the_barrier():
    driver = training()
    number = driver.run.last_window
    for uid in (A, B):
        assert not driver.sent(ReduceGo)
        driver.rank(uid, WindowReport(window=number, trained=(), steps=10, wall_ms=100.0))
        driver.rank(uid, AtBarrier(window=number, samples=80, is_finite=True, payload_hash="x"))
    (go,) = driver.sent(ReduceGo)
    assert (go.participants, go.total_weight, go.deadline) == (2, 160.0, 30.0)


def test_payloads_of_two_sizes_end_the_run():
    driver = training()
    number = driver.run.last_window
    for uid, digest in ((A, "x"), (B, "y")):
        driver.rank(uid, AtBarrier(window=number, samples=80, is_finite=True, payload_hash=digest))
    assert driver.controller.state is RunState.FAILED
    assert driver.run.reason.startswith("payload_mismatch")


@pytest.mark.parametrize("completed", [True, False])
def test_a_window_counts_if_a_survivor_has_its_result(completed):
    driver = training()
    number = driver.window()
    driver.host("h0", RankExit(uid=B, incarnation=0, code=None, signal=9))
    assert driver.controller.state is RunState.RECONFIGURING
    driver.quiesce(version=number if completed else 0)
    account = driver.run.ledger.account(0)
    assert account.committed == (160 if completed else 0)
    assert account.retrained == (0 if completed else 80)
    assert driver.run.version == (number if completed else 0)


def test_a_death_leaves_its_traces():
    driver = training()
    driver.host("h0", RankExit(uid=B, incarnation=0, code=None, signal=11, log_tail="boom"))
    (death,) = [command for command in driver.given if isinstance(command, WriteDeath)]
    assert (death.number, death.details["cause"], death.details["log_tail"]) == (
        1,
        "signal 11",
        "boom",
    )
    assert driver.sent(Reconfigure)[0].lost == (B,)


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"code": None, "signal": 9, "is_oom_killed": True}, "oom_killed"),
        ({"code": 75}, "cuda"),
        ({"code": 0}, "exit 0"),
    ],
)
def test_the_cause_of_a_death_is_named(options, cause):
    driver = training()
    driver.host("h0", RankExit(uid=B, incarnation=0, **options))
    assert driver.run.history.deaths[0]["cause"] == cause


def progress(uid, *, age=0.0, step=1, window_steps=0):
    return Progress(
        ranks=(
            RankProgress(
                uid=uid,
                step=step,
                window_steps=window_steps,
                phase="",
                batch_ms=1.0,
                beat_age=age,
            ),
        )
    )


def test_a_frozen_rank_is_suspect_then_fenced():
    driver = training()
    driver.host("h0", progress(B, age=11.0))
    assert driver.alerts() == ["rank_suspect"]
    driver.host("h0", progress(B, age=30.0))
    (fence,) = driver.sent(Fence)
    assert fence.uid == B
    assert driver.controller.state is RunState.RECONFIGURING
    driver.quiesce()
    assert driver.controller.state is RunState.RECONFIGURING
    driver.host("h0", Fenced(uid=B, incarnation=0))
    assert driver.run.history.deaths[0]["cause"] == "frozen"
    assert driver.controller.state is RunState.FORMING


def test_a_host_that_is_cut_off_is_suspect_then_lost_without_confirmation():
    driver = training(A, C)
    alerts = []
    for _ in range(32):
        driver.host("h0", Beat(monotonic_ms=0, acked_seq=0), after=0)
        driver(Tick(), 1.0)
        alerts += driver.alerts()
    assert alerts == ["host_suspect", "rank_lost"]
    assert driver.run.history.deaths[0]["cause"] == "partition"
    driver.quiesce()
    assert driver.run.world == (A,)


def test_a_host_that_comes_back_in_time_was_never_lost():
    driver = training(A, C)
    for _ in range(20):
        driver.host("h0", Beat(monotonic_ms=0, acked_seq=0), after=0)
        driver(Tick(), 1.0)
    assert driver.run.roster.members[C].is_suspect
    driver.host("h1", Beat(monotonic_ms=0, acked_seq=0))
    assert not driver.run.roster.members[C].is_suspect
    assert driver.controller.state is RunState.TRAINING


def test_a_rank_that_takes_no_step_is_fenced_as_stalled():
    driver = training(timeouts=dataclasses.replace(Timeouts(), barrier_floor=1e6))
    driver.rank(
        A, AtBarrier(window=driver.run.last_window, samples=1, is_finite=True, payload_hash="")
    )
    for _ in range(61):
        driver.host("h0", progress(B, step=1), after=0)
        driver(Tick(), 5.0)
    assert driver.run.roster.members[B].cause == "stalled"
    assert driver.run.roster.members[A].is_alive


def test_members_that_never_come_to_the_barrier_are_fenced():
    driver = training()
    driver.rank(
        A, AtBarrier(window=driver.run.last_window, samples=1, is_finite=True, payload_hash="")
    )
    driver.tick(61)
    assert driver.run.roster.members[B].cause == "barrier"


def test_a_window_that_lasts_ten_times_as_long_as_predicted_is_told_with_who_it_waits_for():
    driver = measured(A, B, C)
    run, beat = driver.run, driver.run.settings.timeouts.heartbeat
    predicted = run.cadence.anchor_wall_ms / 1000
    assert predicted > 0
    arrival = AtBarrier(window=run.last_window, samples=1, is_finite=True, payload_hash="x")
    driver.rank(A, arrival)
    driver.tick(10 * predicted + beat - 0.1)
    assert not driver.alerts()
    driver.tick(0.2)
    (alert,) = [command for command in driver.given if isinstance(command, RaiseAlert)]
    assert (alert.code, alert.level) == ("slow_window", "warning")
    assert alert.message == f"window {run.last_window} waits for rank1, rank2"
    driver.tick(10 * predicted + beat)
    assert not driver.alerts()  # once a window
    assert all(run.roster.members[uid].is_alive for uid in (A, B, C))


def measured(*uids, **options):
    """A run after its first window, with batches of 10 ms: windows are ended by time."""
    driver = training(*uids, **options)
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    return driver


def arrive(driver, uid, **options):
    values = {"samples": 80, "is_finite": True, "payload_hash": "x"} | options
    return driver.rank(uid, AtBarrier(window=driver.run.last_window, **values))


def orders(driver):
    return {
        command.uid: command.message.target
        for command in driver.given
        if isinstance(command, ToMembers | ToMember) and isinstance(command.message, SyncNow)
    }


def test_members_at_the_barrier_train_on_while_a_batch_of_another_one_takes_very_long():
    driver = measured(A, B, C)
    window = driver.run.window
    arrive(driver, A)
    driver.tick(0.05)
    arrive(driver, B)
    driver.tick(0.03)
    assert orders(driver) == {}  # that may be a moment in which the host was busy
    driver.tick(0.02)
    assert orders(driver) == {A: Target(), B: Target()}
    assert window.missing == [C]
    arrive(driver, C)  # the window ends as soon as the others have trained what they are at
    assert orders(driver) == {A: Target(steps=0), B: Target(steps=0)}
    arrive(driver, B, samples=240)
    assert not driver.sent(ReduceGo)
    arrive(driver, A, samples=240)
    (go,) = driver.sent(ReduceGo)
    assert go.total_weight == 560.0
    assert "ahead" not in driver.run.deadlines


def test_long_batches_are_waited_for_as_long_as_two_of_them():
    driver = training(A, B)
    number = driver.run.last_window
    for uid in (A, B):
        driver.rank(uid, WindowReport(window=number, trained=(), steps=10, wall_ms=5000.0))
        arrive(driver, uid)
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    arrive(driver, A)
    driver.tick(0.95)
    assert orders(driver) == {}
    driver.tick(0.1)
    assert list(orders(driver)) == [A]


def test_a_member_that_trained_on_and_has_nothing_left_is_waited_for_no_more():
    driver = measured(A, B)
    arrive(driver, A)
    driver.tick(0.11)
    assert list(orders(driver)) == [A]
    arrive(driver, A, samples=240)
    driver.tick(0.11)
    assert orders(driver) == {}  # it was told once that the window goes on
    arrive(driver, B)
    assert orders(driver) == {}
    assert len(driver.sent(ReduceGo)) == 1


def test_a_member_whose_batch_never_ends_is_fenced_and_those_that_trained_on_are_not():
    driver = measured(A, B)
    arrive(driver, A)
    driver.tick(61)
    assert driver.run.roster.members[B].cause == "barrier"
    assert driver.run.roster.members[A].is_alive
    assert not driver.run.roster.members[A].cause


def test_a_member_that_does_not_come_back_from_training_on_is_fenced_in_its_own_time():
    driver = measured(A, B)
    arrive(driver, A)
    driver.tick(50)
    arrive(driver, B)
    assert orders(driver) == {A: Target(steps=0)}
    driver.tick(59)
    assert driver.run.roster.members[A].is_alive
    driver.tick(2)
    assert driver.run.roster.members[A].cause == "barrier"


@pytest.mark.parametrize(
    ("elche", "samples", "is_finite"),
    [
        (ElCheConfig.cpu_sync(), 8000, True),
        (ElCheConfig.cpu_cadence(deterministic="schedule"), 8000, True),
        (ElCheConfig.cpu_cadence(), 240, True),  # nothing is left for it
        (ElCheConfig.cpu_cadence(), 8000, False),
    ],
)
def test_others_wait_at_the_barrier(elche, samples, is_finite):
    plan = WorkPlan(samples=samples, batch_size=8, num_epochs=1)
    driver = measured(A, B, elche=elche, plan=plan)
    if samples == 240:
        for uid in (A, B):
            driver.rank(
                uid,
                WindowReport(
                    window=driver.run.last_window,
                    trained=tuple(
                        Trained(lease_id=work.lease_id, batches=99, samples=work.samples)
                        for work in driver.run.ledger.held(uid)
                    ),
                    steps=4,
                    wall_ms=40.0,
                ),
            )
    arrive(driver, A, is_finite=is_finite)
    driver.tick(1.0)
    assert orders(driver) == {}
    assert A in driver.run.window.arrived


def test_a_window_that_is_to_end_calls_everyone_back():
    driver = measured(A, B)
    arrive(driver, A)
    driver.tick(0.11)
    driver(StopRequested(save=True))
    assert set(driver.run.window.missing) == {A, B}
    arrive(driver, A)
    arrive(driver, B)
    assert len(driver.sent(ReduceGo)) == 1


@pytest.mark.parametrize(("left", "wall_ms"), [(22, 125), (25, 125), (26, 100), (60, 100)])
def test_a_short_rest_of_an_epoch_is_taken_with_the_window_before_it(left, wall_ms):
    # a window of two leases of 4; windows are to last ten batches of 10 ms
    driver = measured(plan=WorkPlan(samples=8 * (8 + left), batch_size=8, num_epochs=2))
    targets = driver.run.window.targets
    assert [target.wall_ms for target in targets.values()] == pytest.approx([wall_ms] * 2)


def exited(uid, incarnation=0):
    return RankExit(uid=uid, incarnation=incarnation, code=1)


def test_ranks_that_end_before_the_run_begins_and_stay_away_end_it():
    driver = Driver()
    driver.hello(A)
    driver.hello(B)
    driver.ready(A)
    driver.host("h0", exited(B))
    driver.hello(B, incarnation=1)  # started again
    driver.tick(30)
    assert driver.run.state is RunState.WAITING
    driver.host("h0", dataclasses.replace(exited(B, 1), log_tail="Trace\n  ImportError: no\n"))
    driver.tick(1)
    assert driver.run.state is RunState.WAITING
    driver.tick(2 * driver.run.settings.timeouts.heartbeat)
    assert driver.run.state is RunState.FAILED
    assert driver.run.reason == (
        "join: 2 ranks are needed, and there ended before the run began: rank1 exit 1 "
        "(ImportError: no)"
    )


def test_a_run_goes_on_waiting_where_others_may_come():
    driver = Driver(join=JoinRules(least=1))
    driver.hello(A)
    driver.host("h0", exited(A))
    driver.tick(60)
    assert driver.run.state is RunState.WAITING


def test_windows_of_no_prediction_are_not_called_slow():
    driver = training()
    driver.tick(50)
    assert "slow_window" not in driver.alerts()


def test_a_reduce_that_stalls_is_tried_once_more_and_then_ends_the_run():
    driver = training(duties=DutyRules(save_path="run"))
    for attempt in range(2):
        driver.window()
        driver.tick(31)
        assert driver.controller.state is RunState.RECONFIGURING
        driver.quiesce()
        if attempt == 0:
            driver.form()
    assert driver.controller.state is RunState.SAVING
    assert driver.run.ending.reason == "reduce_stall"
    assert driver.run.ending.is_failed


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "nccl_sync"])
def test_a_member_that_keeps_a_run_from_ending_is_given_up_in_time_to_save(mode):
    driver = training(A, B, C, elche=getattr(ElCheConfig, mode)(), duties=DutyRules(save_path="m"))
    if mode != "nccl_sync":
        number = driver.window()
        driver.all(lambda uid: Reduced(window=number, ms=1.0))
    driver(StopRequested(reason="interrupted"))
    for uid in (A, B):
        if mode == "nccl_sync":
            driver.rank(uid, Quiesced(gen=driver.run.gen, version=0, steps=3, trained=()))
        else:
            arrival = {"samples": 0, "is_finite": True, "payload_hash": "x"}
            driver.rank(uid, AtBarrier(window=driver.run.last_window, **arrival))
    driver.tick(19.9)
    assert not driver.sent(Fence)
    driver.tick(0.2)
    (fence,) = driver.sent(Fence)
    assert fence.uid == C
    assert driver.alerts() == ["drain_late"]
    driver.host("h1", Fenced(uid=C, incarnation=0))
    driver.quiesce()
    driver.form()
    if mode != "nccl_sync":
        driver.window(samples=0)
    assert driver.controller.state is RunState.SAVING
    assert [message.kind for message in driver.sent(RunCallback)] == ["checkpoint", "final"]
    assert driver.run.history.deaths[0]["cause"] == "drain"
    assert not driver.run.ending.is_failed


def test_a_run_that_nobody_keeps_from_ending_and_that_does_not_end_has_failed():
    driver = training()
    driver.run.ending = Ending(reason="interrupted")
    driver.run.set_deadline("drain", 1.0)
    driver.tick(2.0)
    assert driver.controller.state is RunState.FAILED
    (finish,) = [command for command in driver.given if isinstance(command, Finish)]
    assert finish.reason == "interrupted: no last window within its time"


def test_what_gradient_steps_have_done_is_written_down_before_ranks_forget_it():
    driver = training(elche=ElCheConfig.nccl_sync(collective="gloo"))
    written = []

    def told(kind):
        is_written = any(isinstance(command, Persist) for command in driver.given)
        written.append((kind, bool(driver.sent(kind)), is_written))

    steps = driver.run.window.targets[A].steps
    for uid in (A, B):
        work = driver.run.ledger.held(uid)[0]
        done = Trained(lease_id=work.lease_id, batches=steps, samples=work.samples)
        report = WindowReport(window=1, trained=(done,), steps=steps, wall_ms=10.0)
        driver.rank(uid, report)
    told(Commit)
    driver = training(elche=ElCheConfig.nccl_sync(collective="gloo"))
    told(SyncNow)
    dies(driver, B)
    told(Reconfigure)
    driver.quiesce()
    told(World)
    assert written == [(kind, True, True) for kind in (Commit, SyncNow, Reconfigure, World)]


def test_a_rank_that_died_while_there_was_no_controller_is_let_in_again():
    driver = training(elastic=ElasticConfig(respawn=1))
    state = json.loads(json.dumps(driver.controller.to_state()))
    driver.controller = Controller.restarted(driver.run.settings, state, driver.now)
    driver.host("h0", hello(A, held=Held(gen=1, version=0)))
    assert driver.run.roster.members[A].is_awaited
    driver.hello(B, incarnation=1)
    (accept,) = driver.sent(Accept)
    assert accept.members[0].incarnation == 1
    assert driver.run.history.deaths[0]["cause"] == "unseen"
    driver.host("h0", RankExit(uid=B, incarnation=0, code=None, signal=9))  # sent once more
    (death,) = driver.run.history.deaths
    assert death["cause"] == "signal 9"
    (file,) = [command for command in driver.given if isinstance(command, WriteDeath)]
    assert file.details["cause"] == "signal 9"
    driver.quiesce()
    assert driver.controller.state is RunState.FORMING


def test_below_min_ranks_the_run_waits_and_then_ends():
    driver = training(elastic=ElasticConfig(min_ranks=2, quorum_wait=100))
    driver.host("h0", RankExit(uid=B, incarnation=0, code=1))
    driver.quiesce()
    assert driver.controller.state is RunState.WAITING
    driver.hello(B, incarnation=1)
    driver.ready(B, incarnation=1)
    assert driver.controller.state is RunState.FORMING
    other = training(elastic=ElasticConfig(min_ranks=2, quorum_wait=100))
    other.host("h0", RankExit(uid=B, incarnation=0, code=1))
    other.quiesce()
    other.tick(101)
    assert other.controller.state is RunState.SAVING
    assert other.run.ending.reason == "below_min_ranks"


def test_a_run_that_waits_for_members_saves_what_it_has():
    driver = training(elastic=ElasticConfig(min_ranks=2), duties=DutyRules(save_path="run"))
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    driver.host("h0", RankExit(uid=B, incarnation=0, code=1))
    driver.quiesce(version=number)
    (callback,) = driver.sent(RunCallback)
    assert (callback.kind, callback.version, callback.stem) == ("checkpoint", number, "run")
    assert driver.controller.state is RunState.WAITING


def test_a_result_that_only_the_lost_member_had_does_not_count():
    driver = training()
    number = driver.window()
    driver.rank(B, Reduced(window=number, ms=1.0))
    driver.host("h0", RankExit(uid=B, incarnation=0, code=None, signal=9))
    driver.quiesce(version=0)
    account = driver.run.ledger.account(0)
    assert (account.committed, account.retrained, driver.run.version) == (0, 80, 0)


def test_more_deaths_than_allowed_end_the_run():
    driver = training(A, B, C, max_failures=1)
    for uid in (B, C):
        driver.host(uid.split("/")[0], RankExit(uid=uid, incarnation=0, code=1))
        driver.quiesce()
        driver.form()
    assert driver.run.ending.reason == "max_failures"


def test_the_last_death_ends_the_run():
    driver = training()
    for uid in (A, B):
        driver.host("h0", RankExit(uid=uid, incarnation=0, code=1))
    assert driver.controller.state is RunState.FAILED
    assert driver.run.reason == "all_ranks_lost"


def test_joiners_enter_together_at_a_commit_and_not_too_often():
    driver = training()
    driver.hello(C)
    driver.ready(C)
    assert driver.controller.state is RunState.TRAINING
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    assert driver.controller.state is RunState.RECONFIGURING
    assert driver.sent(Reconfigure)[0].joined == (C,)
    driver.quiesce(version=number)
    assert driver.run.world == (A, B, C)
    gen = driver.run.gen
    driver.all(lambda uid: FormAck(gen=gen, ok=True, ms=1.0))
    (sync,) = driver.sent(StateSync)
    assert (sync.donor, sync.receivers, sync.version) == (A, (C,), number)
    driver.all(lambda uid: Synced(gen=gen, version=number))
    driver.hello("h1/d/0")
    driver.ready("h1/d/0")
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    assert driver.controller.state is RunState.TRAINING


def test_ranks_too_far_ahead_are_throttled_and_let_go():
    driver = training(elche=ElCheConfig.cpu_cadence(max_batch_diff=2))
    driver.host("h0", progress(A, window_steps=5))
    assert [type(m) for m in driver.sent(Throttle)] == [Throttle]
    driver.host("h0", progress(B, window_steps=4))
    assert driver.run.throttling.held == set()


def test_a_lost_launcher_is_waited_for():
    driver = training()
    driver(LauncherLost())
    driver.tick(100)
    driver(LauncherBack())
    driver.tick(50)
    assert driver.controller.state is not RunState.DRAINING
    assert driver.run.ending is None
    other = training(timeouts=dataclasses.replace(Timeouts(), stall=1e6, barrier_floor=1e6))
    other(LauncherLost())
    other.tick(121)
    assert other.run.ending.reason == "graceful_shutdown"


def test_abort_ends_at_once_on_every_host():
    driver = training(A, C)
    driver(AbortRequested())
    assert driver.controller.state is RunState.FAILED
    aborts = [
        c.host for c in driver.given if isinstance(c, ToHost) and isinstance(c.message, Abort)
    ]
    assert aborts == ["h0", "h1"]


def test_work_that_nobody_has_left_ends_the_windows_of_those_who_ask():
    driver = training(plan=WorkPlan(samples=160, batch_size=8, num_epochs=1))
    while driver.run.ledger.free_batches(0):
        driver.rank(A, lease_ack(driver, A))
        driver.rank(B, lease_ack(driver, B))
    driver.run.window.targets[A] = dataclasses.replace(driver.run.window.targets[A], at_end=False)
    driver.rank(A, lease_ack(driver, A))
    (message,) = driver.sent(SyncNow)
    assert (message.window, message.target.at_end) == (driver.run.last_window, True)
    driver.rank(A, lease_ack(driver, A))
    assert driver.sent(SyncNow) == []


def lease_ack(driver, uid):
    return LeaseAck(lease_id=driver.run.ledger.newest(uid), batches=1)


def test_leases_are_of_the_epochs_order():
    driver = Driver()
    driver.hello(A, B)
    driver.ready(A, B)
    driver.all(lambda uid: FormAck(gen=1, ok=True, ms=1.0))
    driver.rank(A, Synced(gen=1, version=0))
    driver.rank(B, Synced(gen=1, version=0))
    first, second = driver.sent(Lease)
    assert (first.ranges, second.ranges) == (((0, 400),), ((400, 800),))
    broadcast = [c for c in driver.given if isinstance(c, ToMembers)]
    assert broadcast[0].uids == (A, B)


@pytest.mark.parametrize(
    "options",
    [{"least": 0}, {"least": 3, "target": 2}, {"start": "later"}, {"start": "manual", "target": 2}],
)
def test_join_rules_that_contradict_are_refused(options):
    with pytest.raises(ConfigError):
        JoinRules(**options)


class NudgingGuard:
    """Corrects the anchor whenever ranks are more than half apart."""

    def report(self, report, k_used, k_max):
        return nudge_down(0.5) if report.divergence > 0.5 else STABLE

    def state(self):
        return {}

    def load(self, state):
        pass

    def telemetry(self):
        return {}

    def reset(self):
        pass


@pytest.mark.parametrize(("delta", "drifted"), [(0.1, False), (0.75, True)])
def test_a_correction_of_the_anchor_is_told(delta, drifted):
    driver = training(elche=ElCheConfig.cpu_cadence(convergence_guard=NudgingGuard(), anchor=8))
    number = driver.window()
    driver.rank(A, Reduced(window=number, ms=1.0, delta=delta, post_norm=1.0))
    driver.rank(B, Reduced(window=number, ms=1.0, delta=0.05, post_norm=1.0))
    told = [alert.message for alert in driver.given if isinstance(alert, RaiseAlert)]
    assert told == (["divergence 0.75: the anchor shrinks to 0.5 of 8"] if drifted else [])


def error(kind="user", **options):
    given = {"type_name": "builtins:KeyError", "args": (), "message": "x", "traceback": "x"}
    return RankError(kind=kind, **given | options)


def dies(driver, uid, **options):
    code = {"incarnation": 0, "code": None, "signal": 9} | options
    return driver.host(uid.split("/")[0], RankExit(uid=uid, **code))


def test_who_missed_the_commit_of_a_window_without_an_average_has_its_state_all_the_same():
    driver = training(A, B, C, elche=ElCheConfig.nccl_sync(collective="gloo"))
    steps = driver.run.window.targets[A].steps
    number = driver.run.last_window
    for uid in driver.run.world:
        (work,) = driver.run.ledger.held(uid)
        trained = (Trained(lease_id=work.lease_id, batches=steps, samples=work.samples),)
        report = WindowReport(window=number, trained=trained, steps=steps, wall_ms=100.0)
        driver.rank(uid, report)
    assert driver.run.version == number
    dies(driver, B)
    if driver.controller.state is RunState.RECONFIGURING:
        driver.quiesce(version=0)
        gen = driver.run.gen
        driver.all(lambda uid: FormAck(gen=gen, ok=True, ms=1.0))
        assert [s.source for s in driver.sent(StateSync)] == ["donor"]
    assert {driver.run.roster.members[uid].version for uid in (A, C)} == {number}


def test_a_newcomer_that_has_the_state_can_give_it_on():
    driver = training(A, B, elche=ElCheConfig.cpu_sync())
    driver.hello(C)
    driver.ready(C)
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    driver.quiesce(version=number)
    gen = driver.run.gen
    driver.all(lambda uid: FormAck(gen=gen, ok=True, ms=1.0))
    driver.rank(C, Synced(gen=gen, version=number))
    dies(driver, A)
    dies(driver, B)
    driver.quiesce(version=number)
    gen = driver.run.gen
    driver.rank(C, FormAck(gen=gen, ok=True, ms=1.0))
    (sync,) = driver.sent(StateSync)
    assert (sync.source, sync.donor, sync.version) == ("own", C, number)


def test_what_a_lost_member_left_undone_is_done_before_training_goes_on():
    plan = WorkPlan(samples=160, batch_size=8, num_epochs=3)
    duties = DutyRules(checkpoint_every=1, save_path="/x")
    driver = training(plan=plan, duties=duties, elche=ElCheConfig.cpu_sync())
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    (asked,) = [c for c in driver.given if isinstance(getattr(c, "message", 0), RunCallback)]
    dies(driver, asked.uid)
    driver.quiesce(version=number)
    driver.form()
    kinds = [type(getattr(command, "message", None)) for command in driver.given]
    assert kinds.index(RunCallback) < kinds.index(SyncNow)
    (again,) = driver.sent(RunCallback)
    assert (again.epoch, again.attempt) == (0, 2)


def test_who_evaluates_is_not_taken_for_one_that_does_not_stop():
    plan = WorkPlan(samples=160, batch_size=8, num_epochs=3)
    driver = training(plan=plan, duties=DutyRules(eval_every=1), elche=ElCheConfig.cpu_sync())
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    (busy,) = driver.run.desk.busy
    dies(driver, A if busy == B else B)
    limit = driver.run.settings.timeouts.eval_callback
    assert driver.run.deadlines["quiesce"] == pytest.approx(driver.now + limit)


def test_what_all_ranks_raise_before_training_ends_the_run_at_once_and_is_told_once():
    driver = Driver()
    driver.hello(A, B)
    for uid in (A, B):
        driver.rank(uid, error())
        dies(driver, uid, code=1, signal=None)
    assert driver.controller.state is RunState.FAILED
    (finish,) = [command for command in driver.given if isinstance(command, Finish)]
    assert (finish.reason, len(finish.errors)) == ("user_error", 1)
    assert finish.report["errors"] == {"builtins:KeyError: x": 2}


def test_others_have_a_moment_to_raise_the_same_before_training():
    driver = Driver()
    driver.hello(A, B)
    driver.rank(A, error())
    dies(driver, A, code=1, signal=None)
    assert driver.controller.state is RunState.WAITING
    driver.tick(2.1)
    assert (driver.controller.state, driver.run.reason) == (RunState.FAILED, "user_error")


def test_what_a_rank_raises_that_comes_late_ends_training_in_good_order():
    driver = training()
    driver.hello(C)
    driver.rank(C, error())
    dies(driver, C, code=1, signal=None)
    assert driver.controller.state is RunState.DRAINING
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    assert driver.controller.state is RunState.SAVING


@pytest.mark.parametrize(
    ("kind", "options", "is_fatal"),
    [
        ("oom", {}, False),
        ("oom", {"oom_policy": "evict"}, False),
        ("oom", {"oom_policy": "fail"}, True),
        ("cuda", {"oom_policy": "fail"}, False),
        ("user", {}, True),
        ("user", {"elastic": ElasticConfig(on_user_exception="evict")}, False),
        ("nonfinite", {}, True),
        ("internal", {}, True),
    ],
)
def test_the_kind_of_an_error_says_whether_the_run_goes_on(kind, options, is_fatal):
    driver = training(**options)
    driver.rank(B, error(kind))
    assert "rank_error" in driver.alerts()
    assert (driver.run.ending is not None) == is_fatal
    dies(driver, B, code=1, signal=None)
    assert driver.run.history.deaths[0]["cause"] == kind


def test_a_late_snapshot_is_left_out_and_what_was_trained_waits():
    driver = training(A, B, C, elche=ElCheConfig.cpu_async(snapshot_timeout=1.0))
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    number, before = driver.run.last_window, driver.run.ledger.account(0).committed
    for uid in (A, B):
        (work, *_) = driver.run.ledger.held(uid)
        trained = (Trained(lease_id=work.lease_id, batches=1, samples=work.samples),)
        report = WindowReport(window=number, trained=trained, steps=1, wall_ms=10.0)
        driver.rank(uid, report)
        arrival = {"samples": work.samples, "is_finite": True, "payload_hash": "x"}
        driver.rank(uid, AtBarrier(window=number, **arrival))
    assert not driver.sent(ReduceGo)
    driver.tick(1.5)
    assert driver.alerts() == ["snapshot_late"]
    (go,) = driver.sent(ReduceGo)
    assert go.late == (C,)
    assert go.weight(C, 80) == 0.0
    assert go.weight(A, 80) > 0
    arrival = {"samples": 80, "is_finite": True, "payload_hash": "x"}
    driver.rank(C, AtBarrier(window=number, **arrival))  # it was on its way
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    assert driver.run.version == number
    gained = driver.run.ledger.account(0).committed - before
    assert gained == driver.run.settings.plan.batch_size * (gained // 8) > 0
    assert driver.run.history.late_snapshots == 1


def test_what_ranks_kept_is_saved_when_none_of_them_is_left():
    driver = training(is_durable=True, elastic=ElasticConfig(respawn=0))
    number = driver.window()
    driver.all(lambda uid: Reduced(window=number, ms=1.0))
    dies(driver, A)
    assert not [command for command in driver.given if isinstance(command, SaveKept)]
    dies(driver, B)
    kinds = [type(command) for command in driver.given]
    assert kinds.index(SaveKept) < kinds.index(Finish)
