"""Every pair of state and event has an outcome, and no event can break the controller."""

import json
import random
from typing import ClassVar

import pytest

from flodl.distributed.config import ElCheConfig
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import (
    AbortRequested,
    FromHost,
    FromMember,
    HostLinkLost,
    LauncherBack,
    LauncherLost,
    StartRequested,
    StopRequested,
    Tick,
)
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.routes import ENTER, FROM_HOST, FROM_MEMBER, LOCAL, TIMERS
from flodl.distributed.controller.run import OVER, RunState
from flodl.distributed.controller.settings import DutyRules, JoinRules, RunSettings
from flodl.distributed.protocol.messages import (
    WIRE_NAMES,
    AtBarrier,
    Bye,
    CallbackDone,
    Fenced,
    FormAck,
    Hello,
    LeaseAck,
    Nack,
    Progress,
    Quiesced,
    RankError,
    RankExit,
    Ready,
    Reduced,
    Synced,
    WindowReport,
)
from flodl.distributed.protocol.values import (
    Device,
    Held,
    Offer,
    RankProgress,
    Trained,
    Versions,
)

STATES = list(RunState)
UP = """
    ready form_ack synced quiesced lease_ack window_report at_barrier reduced callback_done
    rank_error bye stop nack beat telemetry alert log
""".split()
UP_HOST = "hello progress rank_exit fenced nack beat bye telemetry alert log".split()


def settings(mode="cpu_cadence", checkpoint_mode="full", **options):
    rules = DutyRules(
        eval_every=1, checkpoint_every_windows=1, save_path="run", checkpoint_mode=checkpoint_mode
    )
    return RunSettings(
        plan=WorkPlan(samples=200, batch_size=8, num_epochs=2),
        elche=getattr(ElCheConfig, mode)(),
        nonce="run",
        join=JoinRules(least=2, target=3),
        duties=rules,
        **options,
    )


def test_tables_name_every_message_that_comes_up_and_every_state():
    assert {WIRE_NAMES[kind] for kind in FROM_MEMBER} == set(UP)
    assert {WIRE_NAMES[kind] for kind in FROM_HOST} == set(UP_HOST)
    assert set(ENTER) == set(STATES) - {RunState.INIT}
    assert set(LOCAL) == {
        StartRequested,
        StopRequested,
        AbortRequested,
        LauncherLost,
        LauncherBack,
    }


EXPECTED = {  # what is handled only in some states
    "form_ack": {"forming"},
    "synced": {"forming"},
    "quiesced": {"reconfiguring", "training", "draining", "forming"},
    "lease_ack": {"training"},
    "window_report": {"training", "draining"},
    "at_barrier": {"training", "draining"},
    "reduced": {"training", "draining"},
}
ANYWHERE = {"hello", "nack", "beat", "telemetry", "alert", "log"}


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_an_outcome_for_every_message(state):
    for table in (FROM_MEMBER, FROM_HOST):
        for kind, route in table.items():
            name = WIRE_NAMES[kind]
            outcome = route.outcome(state)
            if name in EXPECTED:
                assert (outcome == "handled") == (state in EXPECTED[name]), name
            elif name in ANYWHERE or (name == "bye" and table is FROM_HOST):
                assert outcome == "handled", name
            else:
                assert (outcome == "handled") == (state not in OVER), name
    early = state in {RunState.INIT, RunState.WAITING, RunState.STAGING}
    assert (FROM_MEMBER[AtBarrier].outcome(state) == "refused") == early
    starts = {RunState.WAITING, RunState.STAGING}
    assert (LOCAL[StartRequested].outcome(state) == "handled") == (state in starts)


def test_timers_have_a_step_for_each_name_that_is_set():
    import re
    from pathlib import Path

    from flodl.distributed import controller

    folder = Path(controller.__file__).parent
    text = "".join(file.read_text() for file in folder.glob("*.py"))
    names = set(re.findall(r'set_deadline\(\s*f?"([a-z_]+)', text))
    names |= set(re.findall(r'deadlines\[f?"([a-z_]+)', text))
    assert names == set(TIMERS)


def test_a_message_that_does_not_fit_is_refused():
    controller = Controller(settings())
    controller.handle(hello("h0", ["h0/a/0"]), 0.0)
    message = AtBarrier(window=1, samples=1, is_finite=True, payload_hash="")
    controller.run.world = ("h0/a/0",)
    given = controller.handle(FromMember(uid="h0/a/0", gen=0, message=message), 1.0)
    assert [type(command.message) for command in given] == [Nack]
    assert given[0].message.kind == "at_barrier"


UIDS = ["h0/a/0", "h0/b/0", "h1/c/0", "h1/d/0"]
VERSIONS = Versions(flodl="0.1.0", torch="2", python="3")


def hello(host, uids, incarnation=0, held=None):
    offers = tuple(
        Offer(uid=uid, incarnation=incarnation, device=Device(uuid=uid, name="cpu"), held=held)
        for uid in uids
    )
    return FromHost(
        host=host,
        gen=0,
        message=Hello(host=host, offers=offers, versions=VERSIONS, proto=1),
    )


class Fuzz:
    """Draws events that might just fit, and many that do not."""

    def __init__(self, seed, mode):
        self.rng = random.Random(seed)
        saving = self.rng.choice(["full", "exact", "sharded"])
        self.controller = Controller(settings(mode, saving))
        self.now = 0.0

    def event(self):
        rng, run = self.rng, self.controller.run
        uid = rng.choice(UIDS)
        host = uid.split("/")[0]
        member = run.roster.members.get(uid)
        incarnation = (member.incarnation if member else 0) + rng.choice([0, 0, 0, 1])
        number = run.last_window - rng.choice([0, 0, 0, 1, -1])
        held = [work for each in UIDS for work in run.ledger.held(each)]
        trained = tuple(
            Trained(
                lease_id=work.lease_id,
                batches=1,
                samples=rng.choice([work.samples, work.trained, rng.randint(-5, 400)]),
            )
            for work in rng.sample(held, min(len(held), 3))
        )
        kind = rng.choices(list(self.DRAWS), self.DRAWS.values())[0]
        return getattr(self, kind)(uid, host, incarnation, number, trained)

    DRAWS: ClassVar = {
        "from_member": 30, "ready": 3, "hello": 2, "exit": 0.4, "fenced": 1, "progress": 2,
        "tick": 3, "raised": 0.05, "stop": 0.02, "abort": 0.01, "launcher": 0.2,
    }  # fmt: skip

    def from_member(self, uid, host, incarnation, number, trained):
        rng, run = self.rng, self.controller.run
        messages = [
            FormAck(gen=run.gen, ok=rng.random() < 0.9, ms=1.0),
            Synced(gen=run.gen, version=run.version, ok=rng.random() < 0.9),
            Quiesced(
                gen=run.gen,
                version=run.version + rng.choice([0, 0, 1]),
                steps=rng.randint(0, 9),
                trained=trained,
            ),
            LeaseAck(lease_id=run.ledger.newest(uid), batches=1),
            WindowReport(
                window=number,
                trained=trained,
                steps=rng.randint(0, 30),
                wall_ms=rng.choice([0.0, 100.0, float("nan"), 1e9]),
            ),
            AtBarrier(
                window=number,
                samples=rng.randint(0, 80),
                is_finite=rng.random() < 0.9,
                payload_hash="" if rng.random() < 0.98 else "other",
            ),
            Reduced(
                window=number,
                ok=rng.random() < 0.9,
                delta=rng.choice([None, 0.01, 0.5]),
                post_norm=1.0,
            ),
            CallbackDone(
                kind=rng.choice(["eval", "checkpoint", "seal", "final"]),
                epoch=run.epoch,
                attempt=rng.randint(1, 3),
                part=rng.randint(0, 2),
                stem=rng.choice(["", *(duty.stem for duty in run.desk.running)]),
                ok=rng.random() < 0.7,
                value={"loss": 1.0},
            ),
            Bye(),
        ]
        gen = run.gen - rng.choice([0, 0, 0, 0, 1])
        # a generation forms only where few other things happen meanwhile
        is_likely = run.state is RunState.FORMING and rng.random() < 0.8
        message = rng.choice(messages[:2] if is_likely else messages)
        return FromMember(uid=uid, gen=gen, message=message)

    def ready(self, uid, host, incarnation, number, trained):
        return FromMember(uid=uid, gen=0, message=Ready(incarnation=incarnation, build_ms=1.0))

    def hello(self, uid, host, incarnation, number, trained):
        held = self.rng.choice([None, Held(gen=0, version=0)])
        return hello(host, [uid], incarnation, held)

    def exit(self, uid, host, incarnation, number, trained):
        code = self.rng.choice([0, 1, None])
        message = RankExit(uid=uid, incarnation=incarnation, code=code)
        return FromHost(host=host, gen=0, message=message)

    def fenced(self, uid, host, incarnation, number, trained):
        return FromHost(host=host, gen=0, message=Fenced(uid=uid, incarnation=incarnation))

    def progress(self, uid, host, incarnation, number, trained):
        row = RankProgress(
            uid=uid,
            step=self.rng.randint(0, 99),
            window_steps=self.rng.randint(0, 9),
            phase="",
            batch_ms=1.0,
            beat_age=self.rng.choice([0.0, 0.0, 11.0, 40.0]),
        )
        return FromHost(host=host, gen=0, message=Progress(ranks=(row,)))

    def tick(self, *unused):
        return Tick()

    def raised(self, uid, *unused):
        kind = self.rng.choice(["user", "cuda", "oom"])
        error = RankError(kind=kind, type_name="a:B", args=(), message="m", traceback="")
        return FromMember(uid=uid, gen=0, message=error)

    def stop(self, *unused):
        return StopRequested()

    def abort(self, *unused):
        return AbortRequested()

    def launcher(self, uid, host, *unused):
        events = [StartRequested(), LauncherLost(), LauncherBack(), HostLinkLost(host=host)]
        return self.rng.choice(events)

    def step(self):
        longest = 30 if self.rng.random() < 0.02 else 0.5  # often enough to lose a host, or two
        self.now += self.rng.choice([0.0, 0.001, 0.01, self.rng.uniform(0, longest)])
        self.controller.handle(self.event(), self.now)
        run = self.controller.run
        run.ledger.check()
        assert run.next_state is None
        assert run.commands == []
        assert set(run.world) >= {member.uid for member in run.active()} or run.state in OVER


@pytest.mark.parametrize("mode", ["nccl_sync", "cpu_sync", "cpu_cadence", "cpu_async"])
def test_random_events_never_raise_and_never_lose_a_sample(mode):
    reached = set()
    for seed in range(40):
        fuzz = Fuzz(seed, mode)
        fuzz.controller.handle(hello("h0", UIDS[:2]), 0.0)
        fuzz.controller.handle(hello("h1", UIDS[2:3]), 0.0)
        for uid in UIDS[:3]:
            fuzz.controller.handle(
                FromMember(uid=uid, gen=0, message=Ready(incarnation=0, build_ms=1.0)), 0.1
            )
        for _ in range(150):
            fuzz.step()
            reached.add(fuzz.controller.state)
        state = json.loads(json.dumps(fuzz.controller.to_state()))
        twin = Controller.restarted(fuzz.controller.run.settings, state, fuzz.now)
        twin.handle(Tick(), fuzz.now + 1)
        twin.run.ledger.check()
    assert {RunState.FORMING, RunState.TRAINING, RunState.RECONFIGURING} <= reached
