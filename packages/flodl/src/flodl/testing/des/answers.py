"""What simulated ranks answer to the controller's messages, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flodl.distributed.protocol.messages import (
    AtBarrier,
    Bye,
    CallbackDone,
    Commit,
    FormAck,
    Lease,
    LeaseAck,
    Message,
    Quiesced,
    Reconfigure,
    Reduced,
    ReduceGo,
    RunCallback,
    StateSync,
    Synced,
    SyncNow,
    WindowReport,
    World,
)
from flodl.distributed.protocol.values import Target
from flodl.testing.des.clock import VirtualClock
from flodl.testing.des.costs import ReduceCost
from flodl.testing.des.ranks import SimulatedRank

BATCH_SIZE = 1
FORM_SECONDS = 0.05
SYNC_SECONDS = 0.02
CALLBACK_SECONDS = 0.1


class Answers:
    """The side of the ranks.

    Args:
        ranks: All of them, by uid.
        clock: When things happen.
        reduce_cost: What an average takes.
        send: Sends a message of a rank to the controller, under a generation.
    """

    def __init__(
        self,
        ranks: Mapping[str, SimulatedRank],
        clock: VirtualClock,
        reduce_cost: ReduceCost,
        send: Callable[[SimulatedRank, Message, int], None],
    ) -> None:
        self.gen = 0
        self._ranks = ranks
        self._clock = clock
        self._reduce_cost = reduce_cost
        self._send = send
        self._on_message: dict[type[Message], Callable[[SimulatedRank, int, Any], None]] = {
            World: self._world,
            StateSync: self._sync,
            SyncNow: self._sync_now,
            Commit: self._commit,
            Lease: self._lease,
            Reconfigure: self._reconfigure,
            RunCallback: self._callback,
            Bye: self._bye,
        }

    def hear(self, uids: Sequence[str], gen: int, message: Message) -> None:
        """Let a message of the controller arrive at ranks."""
        if isinstance(message, ReduceGo):
            self._reduce(uids, gen, message)
            return
        step = self._on_message.get(type(message))
        if step is None:
            return
        for uid in uids:
            rank = self._ranks[uid]
            if not rank.is_dead:
                step(rank, gen, message)

    def _world(self, rank: SimulatedRank, gen: int, message: World) -> None:
        self.gen = gen
        self._clock.after(
            FORM_SECONDS, self._send, rank, FormAck(gen=message.gen, ok=True, ms=50.0), gen
        )

    def _sync(self, rank: SimulatedRank, gen: int, message: StateSync) -> None:
        rank.version = message.version
        answer = Synced(gen=message.gen, version=message.version)
        self._clock.after(SYNC_SECONDS, self._send, rank, answer, gen)

    def _sync_now(self, rank: SimulatedRank, gen: int, message: SyncNow) -> None:
        if message.window < rank.window:
            return
        is_stop = message.target.steps == 0
        if rank.is_arriving and not is_stop:
            if rank.ends:  # on its way to the barrier
                return
            rank.is_arriving = False
        self._follow(rank, gen, message.window, message.target, is_stop=is_stop)

    def _commit(self, rank: SimulatedRank, gen: int, message: Commit) -> None:
        if rank.is_arriving:
            rank.settle()
        rank.version = message.window
        self._follow(rank, gen, message.next_window, message.target, is_stop=False)

    def _follow(
        self, rank: SimulatedRank, gen: int, window: int, target: Target | None, *, is_stop: bool
    ) -> None:
        rank.window, rank.target = window, target
        if is_stop:
            rank.cut(self._clock.now)
        self._go_on(rank, gen)

    def _lease(self, rank: SimulatedRank, gen: int, message: Lease) -> None:
        rank.take(message)
        self._go_on(rank, gen)

    def _go_on(self, rank: SimulatedRank, gen: int) -> None:
        """Draw batches, and schedule what the rank will say on the way."""
        is_reached = rank.draw(self._clock.now)
        half = rank.half_time()
        if half is not None:
            ack = LeaseAck(lease_id=half[0], batches=0)
            self._clock.after(
                max(0.0, half[1] - self._clock.now), self._say, rank, rank.turn, ack, gen
            )
        if is_reached:
            rank.is_arriving = True
            at = max(0.0, rank.clock - self._clock.now)
            self._clock.after(at, self._arrive, rank, rank.turn, gen)

    def _say(self, rank: SimulatedRank, turn: int, message: Message, gen: int) -> None:
        if not rank.is_dead and rank.turn == turn:
            self._send(rank, message, gen)

    def _arrive(self, rank: SimulatedRank, turn: int, gen: int) -> None:
        if rank.is_dead or rank.turn != turn:
            return
        rank.count()
        report = WindowReport(
            window=rank.window,
            trained=rank.progress(),
            steps=rank.carried,
            wall_ms=rank.carried_ms,
        )
        self._send(rank, report, gen)
        barrier = AtBarrier(
            window=rank.window,
            samples=rank.carried * BATCH_SIZE,
            is_finite=True,
            payload_hash="",
        )
        self._send(rank, barrier, gen)

    def _reduce(self, uids: Sequence[str], gen: int, message: ReduceGo) -> None:
        hosts = len({self._ranks[uid].host for uid in uids})
        seconds = self._reduce_cost.seconds(len(uids), hosts)
        self._clock.after(seconds, self._reduced, uids, gen, message.window, seconds)

    def _reduced(self, uids: Sequence[str], gen: int, window: int, seconds: float) -> None:
        """End a collective: everyone has the result, or nobody if one has died in it."""
        ranks = [self._ranks[uid] for uid in uids]
        if gen != self.gen or any(rank.is_dead for rank in ranks):
            return
        for rank in ranks:
            rank.version = window
            rank.settle()
            rank.target = None
            self._send(rank, Reduced(window=window, ms=seconds * 1000), gen)

    def _reconfigure(self, rank: SimulatedRank, gen: int, message: Reconfigure) -> None:
        self.gen = gen
        rank.target = None
        at = rank.cut(self._clock.now)
        self._clock.after(at - self._clock.now, self._quiesced, rank, rank.turn, message.gen)

    def _quiesced(self, rank: SimulatedRank, turn: int, gen: int) -> None:
        if rank.is_dead or rank.turn != turn:
            return
        rank.count()
        rank.asked = 0
        answer = Quiesced(
            gen=gen,
            version=rank.version,
            steps=rank.carried,
            trained=rank.progress(),
            leases=tuple(held.lease for held in rank.leases),
        )
        self._send(rank, answer, gen)

    def _callback(self, rank: SimulatedRank, gen: int, message: RunCallback) -> None:
        done = CallbackDone(
            kind=message.kind,
            epoch=message.epoch,
            attempt=message.attempt,
            part=message.part,
            stem=message.stem,
        )
        self._clock.after(CALLBACK_SECONDS, self._send, rank, done, gen)

    def _bye(self, rank: SimulatedRank, gen: int, message: Bye) -> None:
        self._send(rank, Bye(reason=message.reason), gen)
