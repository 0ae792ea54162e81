"""Controller and rank machines together, without processes: every sample counts exactly once.

A rank's model is the multiset of samples that it was made from. An average adds what its
participants trained since the last one; so the final multiset shows each sample that was lost or
entered twice.
"""

import heapq
import itertools
import json
import random
from collections import Counter, deque

import pytest

from flodl.distributed.config import ElasticConfig, ElCheConfig, Timeouts
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import FromHost, FromMember, StopRequested, Tick
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.run import RunState
from flodl.distributed.controller.settings import DutyRules, JoinRules, RunSettings
from flodl.distributed.lifecycle import rank_events as r
from flodl.distributed.lifecycle.rank import RankMachine
from flodl.distributed.lifecycle.rank_state import RankState
from flodl.distributed.protocol.codec import PROTOCOL, Frame, decode, encode
from flodl.distributed.protocol.messages import (
    Accept,
    Beat,
    CallbackDone,
    Fenced,
    Hello,
    RankError,
    RankExit,
    Reconfigure,
)
from flodl.distributed.protocol.ranges import cut, length
from flodl.distributed.protocol.values import Device, Held, Offer, Telemetry, Versions

VERSIONS = Versions(flodl="0.1.0", torch="2.11", python="3.11")
STALLS = 0.01
"""Share of the batches that last many times as long as the others."""
MODES = {
    "grads": ElCheConfig.nccl_sync(collective="gloo"),
    "sync": ElCheConfig.cpu_sync(),
    "cadence": ElCheConfig.cpu_cadence(),
    "lockstep": ElCheConfig.cpu_cadence(max_batch_diff=0),
    "async": ElCheConfig.cpu_async(),
    "schedule": ElCheConfig.cpu_cadence(deterministic="schedule"),
}


class SimRank:
    """One rank: its machine, the leases of its loader, and its model as a multiset."""

    def __init__(self, world, uid, incarnation, ms):
        self.world, self.uid, self.incarnation, self.ms = world, uid, incarnation, ms
        self.machine = RankMachine(uid, incarnation)
        self.leases = deque()
        self.base, self.version = Counter(), 0
        self.since, self.snapshot = Counter(), None
        self.is_busy = False
        self.mailbox = deque()
        self.is_dead = False
        self.said_bye = False
        self.step = None
        self.reducing = None

    def take(self, event):
        if self.is_dead:
            return
        if self.is_busy and isinstance(getattr(event, "message", None), Reconfigure):
            self.leave_step()
        if self.is_busy:
            self.mailbox.append(event)
            return
        self.do(self.machine.handle(event, self.world.now))
        self.go_on()

    def go_on(self):
        while self.mailbox and not self.is_busy:
            self.do(self.machine.handle(self.mailbox.popleft(), self.world.now))
        if self.is_busy or self.is_dead or not self.machine.may_train:
            return
        self.is_busy = True
        stalls = 40 if self.world.rng.random() < STALLS else 1
        duration = self.ms * stalls * self.world.rng.uniform(0.9, 1.1)
        lease_id, batch = self.next_batch()
        if self.machine.rank.payload == "grads":
            key = (
                self.machine.rank.gen,
                self.machine.rank.window,
                self.machine.rank.work.tally.steps,
            )
            self.step = (lease_id, batch)
            self.world.join_step(self, key, lease_id, batch, duration)
        else:
            self.world.after(duration / 1000, self.batch_done, lease_id, batch, duration)

    def leave_step(self):
        """Give up a gradient step whose collective has not ended: its batch is untrained."""
        if self.step is None:
            return
        self.is_busy = False
        lease_id, batch = self.step
        self.step = None
        for number, (lease, left) in enumerate(self.leases):
            if lease.lease_id == lease_id:
                self.leases[number] = (lease, [(p, p + 1) for _, p in batch] + list(left))

    def next_batch(self):
        while self.leases and not self.leases[0][1]:
            self.leases.popleft()
        if not self.leases:
            assert self.machine.rank.payload == "grads", "no lease, and yet it may train"
            return 0, ()
        lease, left = self.leases[0]
        batch = cut(tuple(left), 0, lease.batch_size)
        rest = cut(tuple(left), lease.batch_size, length(left))
        self.leases[0] = (lease, list(rest))
        positions = [(lease.data_epoch, p) for low, high in batch for p in range(low, high)]
        return lease.lease_id, positions

    def batch_done(self, lease_id, positions, duration, left_out=0):
        if self.is_dead:
            return
        self.is_busy = False
        if self.machine.rank.payload != "grads":
            self.since.update(positions)
        event = r.BatchDone(
            lease_id=lease_id, samples=len(positions), wall_ms=duration, left_out=left_out
        )
        self.do(self.machine.handle(event, self.world.now))
        self.go_on()

    def do(self, commands):
        for command in commands:
            getattr(self, "do_" + type(command).__name__)(command)

    def later(self, event, seconds=0.001):
        self.world.after(seconds, self.take, event)

    def do_Send(self, command):
        self.said_bye = self.said_bye or type(command.message).__name__ == "Bye"
        message = self.world.over_the_wire(command.message, command.gen, self.uid)
        self.world.to_controller(FromMember(uid=self.uid, gen=command.gen, message=message))

    def do_Build(self, command):
        self.later(r.Built(build_ms=1.0), self.world.rng.uniform(0.01, 0.5))

    def do_FormGroups(self, command):
        self.reducing = None
        self.world.sizes[command.world.gen] = len(command.world.members)
        if self.snapshot is not None:  # its average came to nothing
            self.since, self.snapshot = self.snapshot + self.since, None
        self.later(r.Formed(gen=command.world.gen, ok=True, ms=1.0), 0.05)

    def do_TakeState(self, command):
        sync = command.sync
        if self.uid in sync.receivers:
            donor = self.world.ranks[sync.donor]
            assert donor.version == sync.version
            self.base, self.since = Counter(donor.base), Counter()
        self.version = sync.version
        self.later(r.StateTaken(gen=sync.gen), 0.02)

    def do_TakeLease(self, command):
        self.leases.append((command.lease, list(command.lease.ranges)))

    def do_DropLeases(self, command):
        self.leases.clear()
        self.since, self.snapshot = Counter(), None

    def do_MeasureWindow(self, command):
        if command.payload == "snapshot":
            self.snapshot, self.since = self.since, Counter()
        kept = self.since if self.snapshot is None else self.snapshot
        if command.payload != "grads":
            assert sum(kept.values()) == command.samples
        bad = self.world.is_bad(self, command)
        self.later(
            r.WindowMeasured(
                window=command.window,
                is_finite=not bad,
                payload_hash="same",
                telemetry=Telemetry(loss=1.0, lr=0.1),
            )
        )

    def do_StartReduce(self, command):
        self.reducing = (self.machine.rank.gen, command.go.window)
        self.world.join_reduce(self, command.go, command.weight)

    def do_AbandonReduce(self, command):
        self.reducing = None

    def reduced(self, key, consensus):
        if self.is_dead or self.reducing != key:
            return
        self.reducing = None
        self.base, self.version = Counter(consensus), key[1]
        if self.snapshot is None:
            self.since = Counter()
        self.snapshot = None
        self.take(r.ReduceDone(window=key[1], ms=5.0, delta=0.01, pre_norm=1.0, post_norm=1.0))

    def reduce_failed(self, key):
        if not self.is_dead and self.reducing == key:
            self.reducing = None
            self.take(r.ReduceFailed(window=key[1], error="connection reset"))

    def do_ApplyCommit(self, command):
        self.version = command.commit.window

    def do_ExecuteCallback(self, command):
        callback = command.callback
        self.world.callbacks.append((callback.kind, callback.epoch, self.uid))
        fails = self.world.fails_callback(self, callback)
        done = CallbackDone(
            kind=callback.kind,
            epoch=callback.epoch,
            attempt=callback.attempt,
            part=callback.part,
            stem=callback.stem,
            ok=not fails,
            error="broken" if fails else "",
            value={"loss": 1.0} if callback.kind == "eval" else None,
            samples=10,
            ms=20.0,
        )
        self.later(r.CallbackEnded(done=done), 0.02)

    def do_SaveOrphan(self, command):
        self.world.orphans.append(self.uid)

    def do_Exit(self, command):
        self.world.end_process(self, code=command.code)


class World:
    """Ranks, their hosts' reports of deaths, and a controller, on one virtual clock."""

    def __init__(self, config, speeds, *, seed=0, samples=400, epochs=2, **options):
        self.rng = random.Random(seed)
        self.now, self.heap, self.order = 0.0, [], itertools.count()
        options.setdefault("elastic", ElasticConfig(grow_interval=0.01))
        options.setdefault("join", JoinRules(least=len(speeds), target=len(speeds)))
        self.settings = RunSettings(
            plan=WorkPlan(samples=samples, batch_size=8, num_epochs=epochs, drop_last=False),
            elche=config,
            nonce="run",
            timeouts=Timeouts(),
            **options,
        )
        self.controller = Controller(self.settings)
        self.ranks, self.speeds = {}, {}
        self.reduces, self.steps, self.sizes = {}, {}, {}
        self.callbacks, self.orphans, self.alerts, self.metrics = [], [], [], []
        self.finish, self.journal, self.is_down = None, None, False
        self.last_sent = {}
        self.is_bad = lambda rank, command: False
        self.is_bad_step = lambda key: False
        self.fails_callback = lambda rank, callback: False
        self.respawns = True
        for number, ms in enumerate(speeds):
            self.after(0.01 * number, self.hello, f"h{number // 2}/gpu{number}/0", 0, ms)
            self.speeds[f"h{number // 2}/gpu{number}/0"] = ms

    # time

    def after(self, seconds, action, *arguments):
        heapq.heappush(self.heap, (self.now + seconds, next(self.order), action, arguments))

    def run(self, limit=2000.0):
        self.beat()
        while self.heap and self.finish is None:
            self.now, _, action, arguments = heapq.heappop(self.heap)
            assert self.now < limit, f"still {self.controller.state} after {limit} s"
            action(*arguments)
        assert self.finish is not None, self.controller.state
        return self.finish

    def beat(self):
        """Hosts beat and timers run out, once a second."""
        if self.finish is not None:
            return
        for host in sorted({uid.split("/")[0] for uid in self.ranks}):
            beat = Beat(monotonic_ms=0, acked_seq=0)
            self.to_controller(FromHost(host=host, gen=0, message=beat))
        self.to_controller(Tick())
        self.after(1.0, self.beat)

    # the controller

    def over_the_wire(self, message, gen, uid):
        frame = decode(encode(Frame(run="run", gen=gen, seq=1, member=uid, message=message)))
        assert frame.message == message
        return frame.message

    def to_controller(self, event):
        """Deliver after a while, and never before what the same sender sent earlier."""
        sender = getattr(event, "uid", None) or getattr(event, "host", None)
        at = max(self.now + self.rng.uniform(0.0005, 0.002), self.last_sent.get(sender, 0.0))
        self.last_sent[sender] = at
        self.after(at - self.now, self.deliver, event)

    def deliver(self, event):
        if self.is_down and isinstance(getattr(event, "message", None), RankExit):
            self.after(0.2, self.deliver, event)  # a host sends again what was not acknowledged
        if self.is_down or self.finish is not None:
            return
        for command in self.controller.handle(event, self.now):
            getattr(self, "on_" + type(command).__name__, lambda command: None)(command)
        self.controller.run.ledger.check()

    def to_rank(self, uid, gen, message):
        rank = self.ranks.get(uid)
        if rank is not None:
            message = self.over_the_wire(message, gen, uid)
            # In order, as over one socket: the delay is the same for all.
            self.after(0.001, rank.take, r.FromController(gen=gen, message=message))

    def on_ToMember(self, command):
        self.to_rank(command.uid, command.gen, command.message)

    def on_ToMembers(self, command):
        for uid in command.uids:
            self.to_rank(uid, command.gen, command.message)

    def on_ToHost(self, command):
        kind = type(command.message).__name__
        if kind == "Accept":
            for admission in command.message.members:
                self.spawn(admission, command.message)
        elif kind == "Fence":
            rank = self.ranks.get(command.message.uid)
            if rank is not None and rank.incarnation == command.message.incarnation:
                self.end_process(rank, code=None, signal=9)
            done = Fenced(uid=command.message.uid, incarnation=command.message.incarnation)
            self.to_controller(FromHost(host=command.host, gen=0, message=done))

    def on_RaiseAlert(self, command):
        self.alerts.append(command.code)

    def on_PublishEpoch(self, command):
        self.metrics.append(command.metrics)

    def on_Persist(self, command):
        self.journal = json.loads(json.dumps(self.controller.to_state()))

    def on_Finish(self, command):
        self.finish = command

    def restart_controller(self):
        """The controller dies; what it had not written is gone."""
        self.is_down = True

        def back():
            self.is_down = False
            self.controller = Controller.restarted(self.settings, self.journal, self.now)
            for rank in list(self.ranks.values()):
                if not rank.is_dead:
                    self.hello(rank.uid, rank.incarnation, rank.ms, held=True)
                elif self.respawns:
                    self.hello(rank.uid, rank.incarnation + 1, rank.ms)

        self.after(0.5, back)

    # processes

    def hello(self, uid, incarnation, ms, *, held=False):
        self.speeds[uid] = ms
        offer = Offer(
            uid=uid,
            incarnation=incarnation,
            device=Device(uuid=uid, name="cpu"),
            held=Held(gen=0, version=0) if held else None,
        )
        host = uid.split("/")[0]
        message = Hello(host=host, offers=(offer,), versions=VERSIONS, proto=PROTOCOL)
        self.to_controller(FromHost(host=host, gen=0, message=message))

    def spawn(self, admission, accept: Accept):
        there = self.ranks.get(admission.uid)
        if there is not None and not there.is_dead:
            return
        rank = SimRank(self, admission.uid, admission.incarnation, self.speeds[admission.uid])
        self.ranks[admission.uid] = rank
        self.after(0.01, rank.take, r.FromController(gen=accept.gen, message=accept))

    def end_process(self, rank, *, code, signal=None):
        if rank.is_dead:
            return
        rank.is_dead = True
        message = RankExit(uid=rank.uid, incarnation=rank.incarnation, code=code, signal=signal)
        host = rank.uid.split("/")[0]
        self.after(0.05, self.deliver, FromHost(host=host, gen=0, message=message))
        for key in [*self.reduces, *self.steps]:
            self.peer_died(key)
        if self.respawns and code != 0:
            self.after(0.3, self.hello, rank.uid, rank.incarnation + 1, rank.ms)

    def kill(self, uid):
        rank = self.ranks.get(uid)
        others = [member for member in self.controller.run.active() if member.uid != uid]
        if rank is not None and self.finish is None and others:
            self.end_process(rank, code=None, signal=9)

    # collectives: they complete on a rank only with everyone's contribution

    def join_reduce(self, rank, go, weight):
        key = (rank.machine.rank.gen, go.window)
        joined = self.reduces.setdefault(key, {})
        kept = rank.since if rank.snapshot is None else rank.snapshot
        joined[rank.uid] = (rank, Counter(kept) if weight > 0 else Counter())
        if len(joined) < go.participants:
            return
        bases = [each.base for each, _ in joined.values()]
        assert all(base == bases[0] for base in bases), "ranks have different consensus"
        consensus = Counter(bases[0])
        for _, work in joined.values():
            consensus.update(work)
        for each, _ in joined.values():
            self.after(self.rng.uniform(0.002, 0.02), each.reduced, key, consensus)

    def join_step(self, rank, key, lease_id, positions, duration):
        """A gradient step: the batch, then an all-reduce that everyone takes part in."""
        joined = self.steps.setdefault(key, {})
        joined[rank.uid] = (rank, lease_id, positions, duration)
        if len(joined) < self.sizes[key[0]]:
            return
        ready = max(each.ms for each, *_ in joined.values()) / 1000
        for each, lease, batch, took in joined.values():
            everything = [p for _, _, part, _ in joined.values() for p in part]
            at = ready + self.rng.uniform(0.0, 0.002)
            self.after(at, self.step_done, each, key, lease, batch, took, everything)

    def step_done(self, rank, key, lease_id, positions, duration, everything):
        if rank.is_dead or rank.machine.rank.gen != key[0] or rank.step is None:
            return
        rank.step = None
        is_bad = self.is_bad_step(key)  # of one rank: all leave it out
        if not is_bad:
            rank.base.update(everything)
        rank.batch_done(lease_id, positions, duration, left_out=int(is_bad))

    def peer_died(self, key):
        for rank, *_ in self.reduces.get(key, {}).values():
            if self.rng.random() < 0.5:
                self.after(self.rng.uniform(0.0, 0.02), rank.reduce_failed, key)


def seeds(count):
    """The first two seeds run always, the others with the slow tests."""
    return [
        seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(count)
    ]


def expected(world):
    plan = world.settings.plan
    return Counter(
        (epoch, position)
        for epoch in range(plan.num_epochs)
        for position in range(*plan.bounds(epoch))
    )


def check_exact(world, finish):
    assert not finish.is_failed, finish.reason
    for account in finish.report["accounting"]:
        assert (
            account["committed"] + account["skipped_nonfinite"] + account["dropped"]
            == (account["total"])
        )
    trained = world.controller.run.world
    finals = [rank.base for uid, rank in world.ranks.items() if rank.said_bye and uid in trained]
    assert finals
    assert all(base == finals[0] for base in finals)
    assert finals[0] == expected(world)


@pytest.mark.parametrize("mode", MODES)
def test_every_sample_counts_once_in_a_quiet_run(mode):
    world = World(MODES[mode], [10, 25, 40])
    finish = world.run()
    check_exact(world, finish)
    assert finish.report["deaths"] == []
    assert [m.epoch for m in world.metrics] == [0, 1]
    assert all(m.samples_processed == 400 for m in world.metrics)
    assert world.controller.state is RunState.DONE
    assert all(rank.machine.state is RankState.DRAINING for rank in world.ranks.values())


@pytest.mark.parametrize("mode", ["grads", "sync", "cadence", "async"])
def test_one_rank_alone_trains_all_of_it(mode):
    world = World(MODES[mode], [10])
    check_exact(world, world.run())


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("mode", MODES)
def test_every_sample_counts_once_whoever_dies(mode, seed):
    world = World(MODES[mode], [10, 25, 40, 15], seed=seed, samples=1200)
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 6)):
        world.after(rng.uniform(0.8, 5.0), world.kill, rng.choice(list(world.speeds)))
    check_exact(world, world.run())


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("mode", ["grads", "sync", "cadence", "async"])
def test_nobody_comes_back_and_the_rest_finishes(mode, seed):
    world = World(MODES[mode], [10, 25, 40, 15], seed=seed, samples=1200)
    world.respawns = False
    rng = random.Random(seed)
    doomed = rng.sample(list(world.speeds), 3)
    for uid in doomed:
        world.after(rng.uniform(0.0, 6.0), world.kill, uid)
    check_exact(world, world.run())


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("mode", ["grads", "sync", "cadence", "async"])
def test_every_sample_counts_once_when_the_controller_dies(mode, seed):
    world = World(MODES[mode], [10, 25, 40], seed=seed, samples=1200)
    rng = random.Random(seed)
    world.after(rng.uniform(0.8, 2.0), world.restart_controller)
    if seed % 2:
        world.after(rng.uniform(1.0, 3.0), world.kill, rng.choice(list(world.speeds)))
    finish = world.run()
    check_exact(world, finish)
    assert "controller_restarted" in world.alerts


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("mode", ["grads", "sync", "cadence", "async"])
def test_every_sample_counts_once_when_the_next_controller_dies_as_well(mode, seed):
    world = World(MODES[mode], [10, 25, 40], seed=seed, samples=1200)
    rng = random.Random(seed)
    died_at = rng.uniform(0.8, 2.0)
    world.after(died_at, world.restart_controller)
    if seed % 2:  # the answers of those that stand still go to the one or to the other
        world.after(died_at - rng.uniform(0.0, 0.1), world.kill, rng.choice(list(world.speeds)))
    world.after(died_at + 0.5 + rng.uniform(0.0, 0.02), world.restart_controller)
    finish = world.run(limit=Timeouts().controller_grace)  # nobody is waited for in vain
    check_exact(world, finish)
    assert "controller_restarted" in world.alerts


@pytest.mark.parametrize("mode", ["sync", "cadence", "async"])
def test_a_member_that_joins_late_shares_the_work(mode):
    world = World(MODES[mode], [20, 20], samples=2400)
    world.after(2.0, world.hello, "h9/late/0", 0, 20)
    finish = world.run()
    check_exact(world, finish)
    assert world.metrics[-1].member_ids == [0, 1, 2]
    assert min(world.metrics[-1].per_rank_samples) > 0
    assert [m.joined for m in world.metrics if 2 in m.joined]


def test_what_is_not_finite_is_left_out_and_counted():
    world = World(MODES["cadence"], [10, 25, 40], samples=1200)
    world.is_bad = lambda rank, command: rank.uid.startswith("h1") and command.window == 3
    finish = world.run()
    accounts = finish.report["accounting"]
    assert sum(account["skipped_nonfinite"] for account in accounts) > 0
    final = next(iter(world.ranks.values())).base
    assert max(final.values()) == 1
    missing = sum(expected(world).values()) - sum(final.values())
    assert missing == sum(account["skipped_nonfinite"] for account in accounts)


@pytest.mark.parametrize("dies", [False, True])
def test_gradient_steps_that_all_ranks_leave_out_are_counted_as_such(dies):
    world = World(MODES["grads"], [10, 25, 40], samples=4000)
    bad = {7, 8, 49, 50, 73, 110}
    world.is_bad_step = lambda key: key[1] == 1 and key[2] in bad
    if dies:  # its last steps are known by the numbers of those that the others took
        world.after(4.5, world.kill, "h0/gpu1/0")
    finish = world.run()
    assert not finish.is_failed
    left = [account["skipped_nonfinite"] for account in finish.report["accounting"]]
    assert left == [3 * 8 * (len(bad) if not dies else left[0] // 24), 0]
    assert left[0] >= 3 * 8 * 2
    final = next(rank.base for rank in world.ranks.values() if rank.said_bye)
    assert max(final.values()) == 1
    assert sum(expected(world).values()) - sum(final.values()) == left[0]
    assert sum(metrics.samples_processed for metrics in world.metrics) == sum(final.values())


@pytest.mark.parametrize("who", ["h0/gpu0/0", "everyone"])
def test_payloads_that_stay_bad_end_the_run(who):
    world = World(MODES["cadence"], [10, 25], samples=1200)
    world.is_bad = lambda rank, command: who in ("everyone", rank.uid)
    finish = world.run()
    assert finish.is_failed
    assert finish.reason.startswith("nonfinite: rank0")


@pytest.mark.parametrize("mode", ["grads", "sync", "cadence", "async"])
def test_a_stop_averages_once_more_and_saves(mode):
    world = World(MODES[mode], [10, 25], samples=4000, duties=DutyRules(save_path="run"), epochs=3)
    world.after(4.0, world.deliver, StopRequested(reason="interrupted"))
    finish = world.run()
    assert (finish.is_failed, finish.reason) == (False, "interrupted")
    kinds = [kind for kind, _, _ in world.callbacks]
    assert kinds == ["checkpoint", "final"]
    finals = [rank.base for rank in world.ranks.values()]
    assert finals[0] == finals[1]
    committed = sum(account["committed"] for account in finish.report["accounting"])
    assert 0 < committed == sum(finals[0].values())
    assert max(finals[0].values()) == 1


def test_duties_run_on_the_fastest_member_and_are_tried_elsewhere():
    world = World(
        MODES["cadence"],
        [25, 10, 40],
        epochs=3,
        duties=DutyRules(eval_every=2, checkpoint_every=1, save_path="run"),
    )
    world.fails_callback = lambda rank, callback: callback.attempt == 1 and callback.epoch == 1
    check_exact(world, world.run())
    done = [(kind, epoch) for kind, epoch, _ in world.callbacks]
    assert done.count(("eval", 1)) == 2
    assert ("eval", 0) not in done
    assert ("eval", 2) in done
    assert {("checkpoint", epoch) for epoch in range(3)} <= set(done)
    assert {uid for kind, epoch, uid in world.callbacks if epoch == 0} == {"h0/gpu1/0"}


def test_an_exception_of_the_user_ends_the_run_with_one_traceback():
    world = World(MODES["cadence"], [10, 25], samples=4000, duties=DutyRules(save_path="run"))
    error = RankError(
        kind="user",
        type_name="builtins:ValueError",
        args=("bad",),
        message="bad",
        traceback="File train.py, line 3",
    )

    def raise_on(uid):
        world.ranks[uid].take(r.Raised(error=error))

    world.respawns = False
    world.after(3.0, raise_on, "h0/gpu1/0")
    finish = world.run()
    assert finish.is_failed
    assert finish.errors == (error,)
    assert "checkpoint" in [kind for kind, _, _ in world.callbacks]


@pytest.mark.parametrize("mode", ["exact", "sharded"])
@pytest.mark.parametrize("fails", ["", "checkpoint", "seal"])
def test_a_checkpoint_of_all_members_is_sealed_when_all_have_written(mode, fails):
    rules = DutyRules(checkpoint_every=1, save_path="run", checkpoint_mode=mode)
    world = World(MODES["cadence"], [25, 10, 40], epochs=2, duties=rules)
    world.fails_callback = lambda rank, callback: (callback.attempt, callback.kind) == (1, fails)
    check_exact(world, world.run())
    first = [(kind, uid) for kind, epoch, uid in world.callbacks if epoch == 0]
    last = len(first) - 1 - [kind for kind, _ in reversed(first)].index("seal")
    assert {kind for kind, _ in first[last - 3 : last]} == {"checkpoint"}
    assert len({uid for _, uid in first[last - 3 : last]}) == 3
    assert [kind for kind, _ in first].count("seal") == (2 if fails == "seal" else 1)


@pytest.mark.parametrize("mode", ["exact", "sharded"])
def test_members_that_die_while_all_write_leave_a_checkpoint_of_the_rest(mode):
    rules = DutyRules(checkpoint_every_windows=2, save_path="run", checkpoint_mode=mode)
    world = World(MODES["cadence"], [25, 10, 40], epochs=3, duties=rules)
    world.after(2.0, world.kill, "h0/gpu1/0")
    check_exact(world, world.run())
    assert [kind for kind, _, _ in world.callbacks].count("seal") >= 2
