"""The table of a host's machine, and single steps of it."""

import json
import random

import pytest

from flodl.distributed.config import Timeouts
from flodl.distributed.lifecycle import host_events as h
from flodl.distributed.lifecycle.host import LOCAL, MESSAGES, HostMachine, outcome
from flodl.distributed.lifecycle.host_state import HostSettings, HostState
from flodl.distributed.protocol.messages import (
    WIRE_NAMES,
    Abort,
    Accept,
    Beat,
    Bye,
    Fence,
    Fenced,
    Hello,
    Nack,
    Progress,
    RankExit,
    Reject,
    World,
)
from flodl.distributed.protocol.values import Admission, Device, RankProgress, Versions

A, B = "h/a/0", "h/b/0"


def settings(**options):
    devices = tuple((uid, Device(uuid=uid, name="cpu")) for uid in (A, B))
    versions = Versions(flodl="0.1.0", torch="2", python="3")
    return HostSettings(host="h", devices=devices, versions=versions, **options)


def accept(*uids, incarnation=0):
    return Accept(
        members=tuple(
            Admission(uid=uid, incarnation=incarnation, number=number)
            for number, uid in enumerate(uids)
        ),
        gen=1,
        run_nonce="run",
    )


class Driver:
    """A machine with a clock."""

    def __init__(self, **options):
        self.machine, self.now = HostMachine(settings(**options)), 100.0

    def __call__(self, event, after=0.0):
        self.now += after
        return self.machine.handle(event, self.now)

    def hear(self, message):
        return self(h.FromController(gen=1, message=message))


def supervising(**options):
    driver = Driver(**options)
    driver(h.Tick())
    driver(h.LinkUp())
    driver.hear(accept(A, B))
    for uid in (A, B):
        driver(h.RankStarted(uid=uid, incarnation=0))
    assert driver.machine.state is HostState.SUPERVISING
    return driver


def sent(commands):
    return [command.message for command in commands if isinstance(command, h.SendUp)]


def ended(uid=A, **options):
    return h.RankEnded(**{"uid": uid, "incarnation": 0, "code": None, "signal": 9} | options)


def test_a_host_dials_says_hello_and_starts_what_is_let_in():
    driver = Driver()
    assert driver(h.Tick()) == [h.Connect(after=0.0)]
    (message,) = sent(driver(h.LinkUp()))
    assert isinstance(message, Hello)
    assert [offer.uid for offer in message.offers] == [A, B]
    commands = driver.hear(accept(A, B))
    assert [(type(c), c.uid, c.number) for c in commands] == [(h.Spawn, A, 0), (h.Spawn, B, 1)]
    assert driver.machine.state is HostState.SPAWNING
    driver(h.RankStarted(uid=A, incarnation=0))
    assert driver.machine.state is HostState.SPAWNING
    driver(h.RankStarted(uid=B, incarnation=0))
    assert driver.machine.state is HostState.SUPERVISING


def test_dialing_backs_off_up_to_its_cap():
    driver = Driver()
    driver(h.Tick())
    pauses = [driver(h.LinkDown())[-1].after for _ in range(8)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_a_death_is_told_and_the_rank_is_offered_again():
    driver = supervising()
    exit_message, hello = sent(driver(ended()))
    assert (exit_message.uid, exit_message.signal) == (A, 9)
    assert [(offer.uid, offer.incarnation, offer.held) for offer in hello.offers] == [(A, 1, None)]
    (spawn,) = driver.hear(accept(A, incarnation=1))
    assert (spawn.uid, spawn.incarnation) == (A, 1)


def test_a_rank_is_started_again_twice_an_hour():
    driver = supervising(respawn=2)
    for incarnation in range(3):
        messages = sent(driver(ended(incarnation=incarnation)))
        again = any(isinstance(message, Hello) for message in messages)
        assert again == (incarnation < 2)
        driver.hear(accept(A, incarnation=incarnation + 1))


@pytest.mark.parametrize(
    "options",
    [{"is_user_error": True, "code": 1}, {"said_bye": True, "code": 0, "signal": None}],
)
def test_a_user_error_or_goodbye_starts_nothing_again(options):
    messages = sent(supervising()(ended(**options)))
    assert [type(message) for message in messages] == [RankExit]


def test_a_clean_exit_without_goodbye_is_a_death():
    messages = sent(supervising()(ended(code=0, signal=None)))
    assert [type(message) for message in messages] == [RankExit, Hello]


def test_fencing_kills_and_confirms_when_the_process_is_gone():
    driver = supervising()
    assert driver.hear(Fence(uid=A, incarnation=0, deadline=5)) == [h.Kill(uid=A, incarnation=0)]
    messages = sent(driver(ended()))
    assert Fenced(uid=A, incarnation=0) in messages


@pytest.mark.parametrize(("uid", "incarnation"), [(A, 7), ("h/x/0", 0)])
def test_what_is_not_there_is_confirmed_at_once(uid, incarnation):
    (message,) = sent(supervising().hear(Fence(uid=uid, incarnation=incarnation, deadline=5)))
    assert message == Fenced(uid=uid, incarnation=incarnation)


def test_ranks_are_held_before_the_controller_gives_their_work_away():
    driver, timeouts = supervising(), Timeouts()
    assert driver(h.LinkDown()) == [h.TellLink(is_up=False), h.Connect(after=0.2)]
    assert h.HoldRanks() not in driver(h.Tick(), after=timeouts.host_lease - 1)
    assert driver(h.Tick(), after=1.0) == [h.HoldRanks()]
    assert driver(h.Tick(), after=1.0) == []
    driver(h.LinkUp())
    assert driver.hear(accept(A, B)) == [h.TellLink(is_up=True)]


def test_acknowledged_beats_keep_the_lease():
    driver = supervising()
    for _ in range(30):
        driver(h.BeatAcked(sent_at=driver.now))
        assert h.HoldRanks() not in driver(h.Tick(), after=2.0)


def test_a_host_that_is_cut_off_for_good_kills_its_ranks():
    driver = supervising(controller_grace=60.0)
    driver(h.LinkDown())
    driver(h.Tick(), after=25.0)
    driver(h.Tick(), after=60.0)
    assert driver.machine.state is HostState.REAPING
    killed = driver(h.Tick(), after=10.0)
    assert killed == [h.Kill(uid=A, incarnation=0), h.Kill(uid=B, incarnation=0)]
    driver(ended(A))
    assert driver(ended(B))[-1] == h.ExitHost(code=1)


def test_a_hello_after_a_drop_brings_the_running_ranks_along():
    driver = supervising()
    driver.hear(World(gen=4, members=(), topology="flat", nonce="", timeouts={}, version=9))
    driver(h.LinkDown())
    (hello,) = sent(driver(h.LinkUp()))
    assert [(offer.held.gen, offer.held.version) for offer in hello.offers] == [(4, 9), (4, 9)]
    assert hello.run_nonce == "run"


def test_progress_goes_up_at_most_twice_a_second():
    driver = supervising()
    row = RankProgress(uid=A, step=1, window_steps=1, phase="", batch_ms=1.0, beat_age=0.0)
    counts = [
        sum(isinstance(m, Progress) for m in sent(driver(h.PagesRead(ranks=(row,)), after=0.1)))
        for _ in range(20)
    ]
    assert 3 <= sum(counts) <= 4


def test_beats_follow_the_heartbeat():
    driver = supervising()
    beats = [sum(isinstance(m, Beat) for m in sent(driver(h.Tick(), after=0.5))) for _ in range(20)]
    assert sum(beats) == 5


def test_goodbye_waits_for_the_ranks_and_then_ends():
    driver = supervising()
    driver.hear(Bye())
    assert driver(ended(A, code=0, signal=None, said_bye=True))[-1] != h.ExitHost(code=0)
    assert driver(ended(B, code=0, signal=None, said_bye=True))[-1] == h.ExitHost(code=0)
    assert driver.machine.state is HostState.EXIT


def test_a_persistent_host_dials_again():
    driver = supervising(is_persistent=True)
    driver.hear(Bye())
    driver(ended(A, code=0, said_bye=True))
    assert isinstance(driver(ended(B, code=0, said_bye=True))[-1], h.Connect)
    (hello,) = sent(driver(h.LinkUp()))
    assert [offer.incarnation for offer in hello.offers] == [1, 1]
    assert hello.run_nonce == ""


def test_abort_kills_everything():
    commands = supervising().hear(Abort())
    assert commands == [h.Kill(uid=A, incarnation=0), h.Kill(uid=B, incarnation=0)]


@pytest.mark.parametrize(
    ("kind", "is_retryable", "code"),
    [("duplicate_member", False, 1), ("version_skew", False, 2), ("other_run", True, 1)],
)
def test_a_refusal_ends_a_host_that_has_nothing_else(kind, is_retryable, code):
    driver = Driver()
    driver(h.Tick())
    driver(h.LinkUp())
    reject = Reject(code=4426, kind=kind, reason="", is_retryable=is_retryable, uids=(A, B))
    assert driver.hear(reject)[-1] == h.ExitHost(code=code)


def test_saved_state_goes_on_where_it_was():
    driver = supervising()
    state = json.loads(json.dumps(driver.machine.to_state()))
    twin = HostMachine.from_state(driver.machine.run.settings, state)
    assert twin.handle(ended(), 200.0) == driver.machine.handle(ended(), 200.0)


@pytest.mark.parametrize("state", list(HostState))
def test_every_state_has_an_outcome_for_every_event(state):
    for kind in (*WIRE_NAMES, *LOCAL):
        assert outcome(state, kind) in {"handled", "ignored", "refused"}
    for kind in MESSAGES:
        assert (outcome(state, kind) == "handled") or state in (HostState.REAPING, HostState.EXIT)
    is_over = state in (HostState.REAPING, HostState.EXIT)
    assert outcome(state, Hello) == ("ignored" if is_over else "refused")


def test_a_message_that_does_not_fit_is_refused():
    (message,) = sent(supervising().hear(Fenced(uid=A, incarnation=0)))
    assert message == Nack(kind="fenced", seq=0, reason="not expected while supervising")


@pytest.mark.parametrize("seed", range(30))
def test_random_events_never_raise(seed):
    rng, driver = random.Random(seed), Driver()
    messages = [
        accept(A, B),
        accept(A, incarnation=1),
        Bye(),
        Fence(uid=A, incarnation=0, deadline=1),
        Beat(monotonic_ms=0, acked_seq=0),
        Reject(code=4409, kind="x", reason="", is_retryable=True, uids=(A,)),
    ]
    events = [
        h.LinkUp(),
        h.LinkDown(),
        h.BeatAcked(sent_at=1.0),
        h.RankStarted(uid=A, incarnation=0),
        ended(),
        ended(B, code=0),
        h.PagesRead(ranks=()),
        h.Tick(),
    ]
    for _ in range(200):
        if rng.random() < 0.3:
            driver.hear(rng.choice(messages))
        else:
            driver(rng.choice(events), after=rng.choice([0.0, 1.0, 30.0]))
        assert driver.machine.run.commands == []
