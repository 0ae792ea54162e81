"""How a rank ends: in good order, by an error, or because nobody leads it any more."""

from __future__ import annotations

from flodl.distributed.lifecycle.rank_events import (
    AbandonReduce,
    Exit,
    Raised,
    SaveOrphan,
)
from flodl.distributed.lifecycle.rank_forming import tell_quiesced
from flodl.distributed.lifecycle.rank_state import Rank, RankState
from flodl.distributed.protocol.messages import Abort, Bye

EXIT_FAILED = 1
EXIT_STICKY = 75
"""A GPU error that only another process can get over."""
EXIT_ORPHANED = 76


def on_link_lost(rank: Rank, now: float) -> None:
    """Train on with what is in hand; the wait for the controller begins."""
    if rank.lost_at is None:
        rank.lost_at = now


def on_link_restored(rank: Rank) -> None:
    """The controller is there again; a rank that stands still tells it so."""
    rank.lost_at = None
    if rank.state is RankState.ORPHANED:
        tell_quiesced(rank, rank.work.tally.steps)


def on_host_lease_expired(rank: Rank) -> None:
    """Stand still: from now on the work may be given to others."""
    if rank.is_reducing:
        rank.emit(AbandonReduce(window=rank.window))
        rank.is_reducing = False
    rank.state = RankState.ORPHANED


def on_tick(rank: Rank, now: float) -> None:
    """Give up when the controller has stayed away for too long."""
    if rank.lost_at is None or now < rank.lost_at + rank.grace:
        return
    if rank.is_leader and rank.version > 0:
        rank.emit(SaveOrphan(version=rank.version))
    _exit(rank, EXIT_ORPHANED)


def on_raised(rank: Rank, event: Raised) -> None:
    """Tell what was raised, and end."""
    rank.send(event.error)
    _exit(rank, EXIT_STICKY if event.error.kind == "cuda" else EXIT_FAILED)


def on_bye(rank: Rank, message: Bye) -> None:
    """End in good order."""
    rank.send(Bye(reason=message.reason))
    rank.state = RankState.DRAINING
    rank.emit(Exit(code=0))


def on_abort(rank: Rank, message: Abort) -> None:  # noqa: ARG001
    """End at once."""
    _exit(rank, EXIT_FAILED)


def _exit(rank: Rank, code: int) -> None:
    rank.state = RankState.EXITED
    rank.emit(Exit(code=code))
