"""The event loop of a simulated run: one controller, many ranks, one virtual clock."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from flodl.core.errors import RunFailed
from flodl.distributed.config import ElasticConfig
from flodl.distributed.controller.commands import (
    Command,
    Finish,
    PublishWindow,
    StateChanged,
    ToHost,
    ToMember,
    ToMembers,
)
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import Event, FromHost, FromMember, Tick
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.settings import JoinRules, RunSettings
from flodl.distributed.protocol.codec import PROTOCOL
from flodl.distributed.protocol.messages import (
    Accept,
    Hello,
    Message,
    Progress,
    RankExit,
    Ready,
)
from flodl.distributed.protocol.values import Device, Offer, RankProgress, Versions
from flodl.testing.des.answers import BATCH_SIZE, Answers
from flodl.testing.des.clock import VirtualClock
from flodl.testing.des.meter import Meter
from flodl.testing.des.ranks import SimulatedRank
from flodl.testing.des.results import SimulationResult
from flodl.testing.des.scenario import Scenario

PROGRESS_SECONDS = 0.5
EXIT_SEEN_SECONDS = 0.05
THROTTLE = 3.0
VERSIONS = Versions(flodl="0", torch="0", python="0")
MOST_IDEAL_TIMES = 100


def simulate(scenario: Scenario) -> SimulationResult:
    """Run a scenario to its end.

    Raises:
        RunFailed: The controller ended the run for another reason than that it was done.
    """
    return Simulator(scenario).run()


def sync_efficiency(scenario: Scenario) -> float:
    """Return the efficiency of averaging after every batch with equal shares, for comparison."""
    rng = random.Random(scenario.seed)  # noqa: S311 - a simulation
    times = scenario.times(rng)
    cost = scenario.reduce.seconds(scenario.ranks, scenario.cluster.hosts)
    total = 0.0
    for _ in range(scenario.batches_per_rank):
        slowest = max(ms * max(0.2, rng.gauss(1.0, scenario.jitter)) for ms in times)
        total += slowest / 1000 + cost
    return scenario.ideal_seconds(times) / total


class Simulator:
    """Ranks, links and clock around a real controller.

    Args:
        scenario: What is simulated.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._clock = VirtualClock()
        self._rng = random.Random(scenario.seed)  # noqa: S311 - a simulation
        self._latency = scenario.cluster.control_latency
        self._meter = Meter(controller=Controller(_settings(scenario)))
        self._times = scenario.times(self._rng)
        self._ranks = self._make_ranks(self._times)
        self._answers = Answers(self._ranks, self._clock, scenario.reduce, self._from_rank)
        self._hosts: dict[str, list[SimulatedRank]] = {}
        for rank in self._ranks.values():
            self._hosts.setdefault(rank.host, []).append(rank)
        self._started_at: float | None = None
        self._ended_at = 0.0
        self._stopped_at: float | None = None
        self._longest_recovery = 0.0
        self._finish: Finish | None = None
        self._records = 0
        self._on_command: dict[type[Command], Callable[[Any], None]] = {
            ToMember: self._to_member,
            ToMembers: self._to_members,
            ToHost: self._to_host,
            StateChanged: self._state_changed,
            PublishWindow: self._published,
            Finish: self._finished,
        }

    def run(self) -> SimulationResult:
        """Run to the end and return what was found.

        Raises:
            RunFailed: The controller ended the run for another reason than that it was done.
        """
        self._begin()
        ideal = self.scenario.ideal_seconds(self._times)
        limit = MOST_IDEAL_TIMES * ideal + 1000
        while not self._clock.is_idle and self._finish is None and self._clock.now < limit:
            self._clock.step()
        finish = self._finish
        if finish is None or finish.is_failed:
            state = self._meter.controller.state
            reason = f"still {state}" if finish is None else finish.reason
            raise RunFailed(f"simulated run of {self.scenario.ranks} ranks: {reason}")
        return self._result(finish, ideal)

    # Faults and hosts

    def _begin(self) -> None:
        for number, (host, ranks) in enumerate(self._hosts.items()):
            self._clock.after(1e-4 * number, self._hello, host, ranks)
            self._clock.after(PROGRESS_SECONDS * number / len(self._hosts), self._progress, host)
        self._clock.after(PROGRESS_SECONDS, self._tick)

    def _plan_faults(self) -> None:
        """Choose who dies and when, once training has begun."""
        ideal = self.scenario.ideal_seconds(self._times)
        doomed = self._rng.sample(sorted(self._ranks), self.scenario.deaths)
        for uid in doomed:
            self._clock.after(self._rng.uniform(0.05, 0.9) * ideal, self._die, self._ranks[uid])
        if self.scenario.throttle_at is not None:
            first = next(iter(self._ranks.values()))
            self._clock.after(self.scenario.throttle_at * ideal, self._slow_down, first)

    def _slow_down(self, rank: SimulatedRank) -> None:
        rank.ms *= THROTTLE

    # Hosts

    def _make_ranks(self, times: Sequence[float]) -> dict[str, SimulatedRank]:
        ranks = {}
        for number, ms in enumerate(times):
            host = f"host{number // self.scenario.ranks_per_host}"
            uid = f"{host}/device{number % self.scenario.ranks_per_host}/0"
            ranks[uid] = SimulatedRank(
                uid=uid,
                host=host,
                ms=ms,
                jitter=self.scenario.jitter,
                rng=random.Random(self._rng.getrandbits(64)),  # noqa: S311
            )
        return ranks

    def _hello(self, host: str, ranks: Sequence[SimulatedRank]) -> None:
        offers = tuple(
            Offer(uid=rank.uid, incarnation=0, device=Device(uuid=rank.uid, name="simulated"))
            for rank in ranks
        )
        self._from_host(host, Hello(host=host, offers=offers, versions=VERSIONS, proto=PROTOCOL))

    def _progress(self, host: str) -> None:
        rows = tuple(
            RankProgress(
                uid=rank.uid,
                step=rank.steps + rank.carried,
                window_steps=rank.carried,
                phase="training",
                batch_ms=rank.ms,
                beat_age=0.0,
            )
            for rank in self._hosts[host]
            if not rank.is_dead
        )
        self._from_host(host, Progress(ranks=rows))
        self._clock.after(PROGRESS_SECONDS, self._progress, host)

    def _tick(self) -> None:
        deadline = self._meter.controller.next_deadline()
        if deadline is not None and deadline <= self._clock.now:
            self._deliver(Tick())
        self._clock.after(PROGRESS_SECONDS, self._tick)

    def _die(self, rank: SimulatedRank) -> None:
        rank.is_dead = True
        rank.cut(self._clock.now)
        message = RankExit(uid=rank.uid, incarnation=0, code=None, signal=9)
        self._clock.after(EXIT_SEEN_SECONDS, self._from_host, rank.host, message)

    # Messages

    def _from_host(self, host: str, message: Message) -> None:
        self._meter.count_in(message)
        self._clock.after(
            self._latency,
            self._deliver,
            FromHost(host=host, gen=self._answers.gen, message=message),
        )

    def _from_rank(self, rank: SimulatedRank, message: Message, gen: int) -> None:
        self._meter.count_in(message)
        self._clock.after(
            self._latency, self._deliver, FromMember(uid=rank.uid, gen=gen, message=message)
        )

    def _deliver(self, event: Event) -> None:
        for command in self._meter.handle(event, self._clock.now):
            step = self._on_command.get(type(command))
            if step is not None:
                step(command)

    def _to_member(self, command: ToMember) -> None:
        self._meter.count_out(command.message, 1)
        self._clock.after(
            self._latency, self._answers.hear, (command.uid,), command.gen, command.message
        )

    def _to_members(self, command: ToMembers) -> None:
        hosts = {self._ranks[uid].host for uid in command.uids}
        self._meter.count_out(command.message, len(hosts))
        self._clock.after(
            self._latency, self._answers.hear, command.uids, command.gen, command.message
        )

    def _to_host(self, command: ToHost) -> None:
        self._meter.count_out(command.message, 1)
        if isinstance(command.message, Accept):
            for admission in command.message.members:
                self._from_rank(
                    self._ranks[admission.uid], Ready(incarnation=0, build_ms=0.0), command.gen
                )

    def _state_changed(self, command: StateChanged) -> None:
        if command.state == "training":
            if self._started_at is None:
                self._started_at = self._clock.now
                self._plan_faults()
            if self._stopped_at is not None:
                recovery = self._clock.now - self._stopped_at
                self._longest_recovery = max(self._longest_recovery, recovery)
                self._stopped_at = None
        elif command.state == "reconfiguring" and self._stopped_at is None:
            self._stopped_at = self._clock.now
        elif command.state == "saving":
            self._ended_at = self._clock.now

    def _published(self, command: PublishWindow) -> None:
        self._records += 1 + len(command.per_member)

    def _finished(self, command: Finish) -> None:
        self._finish = command

    # The end

    def _result(self, finish: Finish, ideal: float) -> SimulationResult:
        run, meter = self._meter.controller.run, self._meter
        started = 0.0 if self._started_at is None else self._started_at
        seconds = self._ended_at - started
        accounts = finish.report["accounting"]
        deaths = finish.report["deaths"]
        assert isinstance(accounts, list)
        assert isinstance(deaths, list)
        living = [rank for rank in self._ranks.values() if not rank.is_dead]
        windows = run.version
        return SimulationResult(
            ranks=self.scenario.ranks,
            seconds=seconds,
            efficiency=ideal / seconds,
            utilization=sum(rank.busy for rank in living) / (seconds * len(living)),
            batches=run.global_step,
            windows=windows,
            void_windows=run.history.void_windows,
            generations=run.gen,
            deaths=len(deaths),
            longest_recovery=self._longest_recovery,
            events=meter.received,
            sent=meter.sent,
            control_bytes=meter.bytes,
            reduce_bytes=windows
            * self.scenario.reduce.controller_bytes(
                self.scenario.ranks, self.scenario.cluster.hosts
            ),
            records=self._records,
            state_bytes=len(json.dumps(self._meter.controller.to_state())),
            accounting=[dict(account) for account in accounts if isinstance(account, dict)],
            rank_steps=[rank.steps for rank in self._ranks.values()],
            controller=meter.cost(windows),
        )


def _settings(scenario: Scenario) -> RunSettings:
    total = scenario.ranks * scenario.batches_per_rank
    plan = WorkPlan(
        samples=max(1, total // scenario.epochs) * BATCH_SIZE,
        batch_size=BATCH_SIZE,
        num_epochs=scenario.epochs,
    )
    return RunSettings(
        plan=plan,
        elche=scenario.config,
        nonce="simulation",
        elastic=ElasticConfig(respawn=0),
        join=JoinRules(least=scenario.ranks, target=scenario.ranks),
    )
