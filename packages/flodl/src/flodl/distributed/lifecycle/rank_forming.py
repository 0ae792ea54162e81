"""How a rank comes in, forms a generation, and stands still when one ends."""

from __future__ import annotations

from flodl.distributed.lifecycle.rank_events import (
    Build,
    Built,
    DropLeases,
    Formed,
    FormGroups,
    StateTaken,
    TakeState,
)
from flodl.distributed.lifecycle.rank_state import Rank, RankState
from flodl.distributed.protocol.messages import (
    Accept,
    FormAck,
    Quiesced,
    Ready,
    Reconfigure,
    StateSync,
    Synced,
    World,
)


def on_accept(rank: Rank, message: Accept) -> None:
    """Build what is to be trained."""
    rank.state = RankState.BUILDING
    rank.emit(Build(accept=message))


def on_built(rank: Rank, event: Built) -> None:
    """Tell that a generation may include this rank."""
    rank.state = RankState.SYNCING
    rank.send(
        Ready(
            incarnation=rank.incarnation,
            build_ms=event.build_ms,
            model_sig=event.model_sig,
            dataset_sig=event.dataset_sig,
        )
    )


def on_world(rank: Rank, message: World) -> None:
    """Form the groups of a generation."""
    place = next((place for place in message.members if place.uid == rank.uid), None)
    if place is None:
        return
    rank.stop_averaging()
    settle_steps(rank)
    rank.gen, rank.state = message.gen, RankState.SYNCING
    rank.is_leader = place.is_leader
    if place.is_new:
        rank.emit(DropLeases())
        rank.work.drop()
    rank.emit(FormGroups(world=message))


def settle_steps(rank: Rank) -> None:
    """Drop what gradient steps have done: the controller has counted it, and written it down."""
    if rank.payload == "grads":
        rank.work.mark(goes_on=False)
        rank.work.settle()
        rank.reported_steps = 0


def on_formed(rank: Rank, event: Formed) -> None:
    """Tell whether the groups stand."""
    if event.gen == rank.gen:
        rank.send(FormAck(gen=event.gen, ok=event.ok, ms=event.ms, error=event.error))


def on_state_sync(rank: Rank, message: StateSync) -> None:
    """Give, take, or let others do so."""
    rank.syncing = message
    rank.emit(TakeState(sync=message))


def on_state_taken(rank: Rank, event: StateTaken) -> None:
    """Tell that the state is there."""
    sync = rank.syncing
    if sync is None or event.gen != rank.gen:
        return
    rank.syncing = None
    if event.ok:
        rank.state = RankState.READY
        if event.work is not None:
            rank.work = event.work
        elif rank.version < sync.version and rank.uid in sync.receivers:
            rank.work.settle()  # what it had done went into the state that it took over
        rank.version = sync.version
    rank.send(Synced(gen=event.gen, version=sync.version, ok=event.ok, error=event.error))


def on_reconfigure(rank: Rank, message: Reconfigure) -> None:
    """Stand still, and tell how far this rank has come.

    It may come twice under one generation, from a controller that was started again.
    """
    if message.gen == rank.gen:
        if rank.state is RankState.QUIESCED:
            tell_quiesced(rank, rank.work.tally.steps)
        return
    steps = rank.work.tally.steps
    rank.stop_averaging()
    rank.gen, rank.state = message.gen, RankState.QUIESCED
    tell_quiesced(rank, steps)


def tell_quiesced(rank: Rank, steps: int) -> None:
    """Tell the controller where this rank stands."""
    rank.send(
        Quiesced(
            gen=rank.gen,
            version=rank.version,
            steps=steps,
            trained=rank.work.progress(),
            leases=tuple(held.lease for held in rank.work.leases),
            left_out=rank.work.tally.left_out,
        )
    )
