"""What one rank does next: a table of events and states over the steps of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from flodl.distributed.config import Timeouts
from flodl.distributed.lifecycle import rank_ending, rank_forming, rank_training
from flodl.distributed.lifecycle.rank_events import (
    BatchDone,
    Built,
    CallbackEnded,
    Formed,
    FromController,
    HostLeaseExpired,
    LinkLost,
    LinkRestored,
    Raised,
    RankCommand,
    RankEvent,
    ReduceDone,
    ReduceFailed,
    StateTaken,
    Tick,
    WindowMeasured,
)
from flodl.distributed.lifecycle.rank_state import Activity, Rank, RankState
from flodl.distributed.protocol.messages import (
    WIRE_NAMES,
    Abort,
    Accept,
    Bye,
    Commit,
    Lease,
    Message,
    Nack,
    Reconfigure,
    ReduceGo,
    Resume,
    RunCallback,
    StateSync,
    Stop,
    SyncNow,
    Throttle,
    World,
)

Outcome = Literal["handled", "ignored", "refused"]
States = frozenset[RankState]
Step = Callable[[Rank, Any, float], None]

ANY: States = frozenset(RankState)
GONE: States = frozenset({RankState.DRAINING, RankState.EXITED})
LIVE: States = ANY - GONE
BUILT: States = LIVE - {RankState.BOOT, RankState.BUILDING}
MEMBER: States = BUILT - {RankState.ORPHANED}
GROUPED: States = frozenset(
    {RankState.READY, RankState.TRAINING, RankState.BARRIER, RankState.REDUCING}
)
WINDOWED: States = GROUPED - {RankState.READY}
SYNCING: States = frozenset({RankState.SYNCING})


def _without_time(step: Callable[[Rank, Any], None]) -> Step:
    return lambda rank, event, _now: step(rank, event)


def _ignore(rank: Rank, event: object, now: float) -> None:
    """Take what says nothing to a rank."""


MESSAGES: dict[type[Message], tuple[States, Step]] = {
    Accept: (frozenset({RankState.BOOT}), _without_time(rank_forming.on_accept)),
    World: (BUILT, _without_time(rank_forming.on_world)),
    StateSync: (SYNCING, _without_time(rank_forming.on_state_sync)),
    Reconfigure: (BUILT, _without_time(rank_forming.on_reconfigure)),
    SyncNow: (GROUPED, rank_training.on_sync_now),
    Lease: (MEMBER, _without_time(rank_training.on_lease)),
    ReduceGo: (
        frozenset({RankState.TRAINING, RankState.BARRIER}),
        _without_time(rank_training.on_reduce_go),
    ),
    Commit: (WINDOWED, rank_training.on_commit),
    Throttle: (GROUPED, _without_time(rank_training.on_throttle)),
    Resume: (GROUPED, _without_time(rank_training.on_resume)),
    RunCallback: (MEMBER, _without_time(rank_training.on_run_callback)),
    Stop: (LIVE, _ignore),
    Nack: (LIVE, _ignore),
    Bye: (LIVE, _without_time(rank_ending.on_bye)),
    Abort: (LIVE, _without_time(rank_ending.on_abort)),
}

LOCAL: dict[type[Any], tuple[States, Step]] = {
    Built: (frozenset({RankState.BUILDING}), _without_time(rank_forming.on_built)),
    Formed: (SYNCING, _without_time(rank_forming.on_formed)),
    StateTaken: (SYNCING, _without_time(rank_forming.on_state_taken)),
    BatchDone: (frozenset({RankState.TRAINING}), rank_training.on_batch_done),
    WindowMeasured: (
        frozenset({RankState.TRAINING, RankState.BARRIER}),
        _without_time(rank_training.on_measured),
    ),
    ReduceDone: (
        frozenset({RankState.TRAINING, RankState.REDUCING}),
        _without_time(rank_training.on_reduce_done),
    ),
    ReduceFailed: (
        frozenset({RankState.TRAINING, RankState.REDUCING}),
        _without_time(rank_training.on_reduce_failed),
    ),
    CallbackEnded: (LIVE, rank_training.on_callback_ended),
    Raised: (LIVE, _without_time(rank_ending.on_raised)),
    LinkLost: (LIVE, lambda rank, _event, now: rank_ending.on_link_lost(rank, now)),
    LinkRestored: (LIVE, lambda rank, _event, _now: rank_ending.on_link_restored(rank)),
    HostLeaseExpired: (
        BUILT,
        lambda rank, _event, _now: rank_ending.on_host_lease_expired(rank),
    ),
    Tick: (LIVE, lambda rank, _event, now: rank_ending.on_tick(rank, now)),
}


def outcome(state: RankState, kind: type[Any]) -> Outcome:
    """Return what becomes of a kind of event in a state.

    The worker's own events may come late and are then ignored; a message that is not expected is
    refused with ``Nack``, until the rank has ended.
    """
    is_message = kind in WIRE_NAMES
    states = (MESSAGES if is_message else LOCAL).get(kind, (frozenset(), _ignore))[0]
    if state in states:
        return "handled"
    return "refused" if is_message and state not in GONE else "ignored"


class RankMachine:
    """Takes events of one rank and says what is to be done.

    ``handle`` never raises on any event.

    Args:
        uid: Permanent id of the member.
        incarnation: Which process of that member this is.
        controller_grace: Seconds to wait for a lost controller.
    """

    def __init__(
        self,
        uid: str,
        incarnation: int,
        controller_grace: float = Timeouts().controller_grace,
    ) -> None:
        self.rank = Rank(uid=uid, incarnation=incarnation, grace=controller_grace)

    @property
    def state(self) -> RankState:
        """How far the rank has come."""
        return self.rank.state

    @property
    def activity(self) -> Activity:
        """What the rank does while training."""
        return self.rank.activity

    @property
    def may_train(self) -> bool:
        """Whether the next step may be taken now.

        With gradients also without a lease: then it is a step with no samples.
        """
        return self.rank.state is RankState.TRAINING and self.rank.activity is Activity.RUN

    def next_deadline(self) -> float | None:
        """Return when ``Tick`` is due at the latest; ``None``: nothing is waited for."""
        rank = self.rank
        return None if rank.lost_at is None else rank.lost_at + rank.grace

    def handle(self, event: RankEvent, now: float) -> list[RankCommand]:
        """Take an event and return what is to be done, in this order.

        Args:
            event: What happened.
            now: Monotonic seconds, never less than before.
        """
        rank = self.rank
        if isinstance(event, FromController):
            self._take(event.gen, event.message, now)
        else:
            states, step = LOCAL[type(event)]
            if rank.state in states:
                step(rank, event, now)
        given, rank.commands = rank.commands, []
        return given

    def _take(self, gen: int, message: Message, now: float) -> None:
        rank = self.rank
        if gen < rank.gen:
            return
        match outcome(rank.state, type(message)):
            case "handled":
                MESSAGES[type(message)][1](rank, message, now)
            case "refused":
                reason = f"not expected while {rank.state}"
                rank.send(Nack(kind=WIRE_NAMES[type(message)], seq=0, reason=reason))

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return self.rank.to_state()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RankMachine:
        """Return the machine that ``to_state`` described."""
        machine = cls(state["uid"], state["incarnation"])
        machine.rank = Rank.from_state(state)
        return machine
