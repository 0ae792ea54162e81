"""Hands out work: which epoch, how much, and what happens when there is none."""

from __future__ import annotations

import dataclasses

from flodl.distributed.controller.leasing import (
    FEW_MEMBERS,
    Demand,
    epoch_shares,
    is_better_left,
    lease_batches,
    level_shares,
)
from flodl.distributed.controller.roster import Member
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.controller.tallies import EpochTally
from flodl.distributed.controller.window import WindowState
from flodl.distributed.protocol.messages import LeaseAck, SyncNow

MOST_OPEN = 2  # cpu_async: an epoch, and the one that ranks run ahead into


def open_next_epoch(run: Run, *, hands_out: bool = True) -> bool:
    """Open the next epoch if it may be open already; returns whether it was opened.

    Args:
        run: The run.
        hands_out: Give out all of it where ranks do not ask for work.
    """
    most = MOST_OPEN if run.is_async else 1
    if run.next_epoch >= run.settings.plan.num_epochs or len(run.ledger.open_epochs) >= most:
        return False
    epoch, run.next_epoch = run.next_epoch, run.next_epoch + 1
    run.ledger.open(epoch)
    run.tallies[epoch] = EpochTally(epoch=epoch, started_at=run.now)
    if hands_out and not run.settings.is_progressive:
        _split(run, epoch)
    return True


def leasable_epoch(run: Run) -> int | None:
    """Return the first epoch with work that nobody holds, opened if need be."""
    for epoch in run.ledger.open_epochs:
        if run.ledger.free_batches(epoch):
            return epoch
    if open_next_epoch(run):
        return leasable_epoch(run)
    return None


def _split(run: Run, epoch: int) -> None:
    """Give out a whole epoch at once, where ranks do not ask for work."""
    config, batches = run.settings.elche, run.ledger.free_batches(epoch)
    by_speed = not config.mode.is_sync and config.deterministic is None
    speeds = run.speeds()
    ratios = config.partition_ratios
    if ratios is not None and len(ratios) != len(run.world):
        run.alert(
            "partition_ratios", f"{len(run.world)} ranks share equally: {ratios} is of others"
        )
        ratios = None
    shares = epoch_shares(
        batches,
        len(run.world),
        ratios,
        [speeds.get(uid) for uid in run.world] if by_speed else (),
    )
    _hand_out(run, epoch, shares)


def level(run: Run) -> None:
    """Give out what a lost member held, so that ranks that do not ask end together."""
    for epoch in run.ledger.open_epochs:
        held = [run.ledger.untrained_batches(uid) for uid in run.world]
        _hand_out(run, epoch, level_shares(run.ledger.free_batches(epoch), held))


def _hand_out(run: Run, epoch: int, shares: list[int]) -> None:
    for uid, batches in zip(run.world, shares, strict=True):
        lease = run.ledger.grant(uid, epoch, batches) if batches else None
        if lease is not None:
            run.send(uid, lease)


def supply(run: Run, uid: str) -> None:
    """Give a member its next lease, or tell it that there is none for now."""
    if run.state is not RunState.TRAINING or not run.settings.is_progressive:
        return
    epoch = leasable_epoch(run)
    lease = None
    if epoch is not None and not _leaves(run, uid, epoch):
        lease = run.ledger.grant(uid, epoch, _size(run, uid, epoch))
    if lease is None:
        run.hungry.add(uid)
        _tell_end(run, uid)
        return
    run.hungry.discard(uid)
    run.send(uid, lease)
    ms = _ms(run, uid)
    if ms is not None:
        batches = run.settings.plan.batches(sum(stop - start for start, stop in lease.ranges))
        run.horizon.add(uid, batches * ms / 1000, run.now)


def _leaves(run: Run, uid: str, epoch: int) -> bool:
    """Return whether a member leaves the rest of an epoch to one that is done with it sooner.

    Where ranks may run ahead into the next epoch, there is other work instead.
    """
    ms, window = _ms(run, uid), run.window
    if ms is None or window is None or run.is_async or len(run.world) > FEW_MEMBERS:
        return False
    busy_until = {other: max(run.now, run.horizon.ends.get(other, run.now)) for other in run.world}
    others = (
        (busy_until[other], other_ms / 1000)
        for other in run.world
        if other != uid
        and other not in run.hungry
        and other not in window.arrived
        and (other_ms := run.cadence.ms_of(other)) is not None
    )
    done_at = busy_until[uid] + ms / 1000
    return is_better_left(done_at, run.ledger.free_batches(epoch), others)


def supply_all(run: Run) -> None:
    """Give a lease to everyone who asked in vain."""
    for uid in [uid for uid in run.world if uid in run.hungry]:
        supply(run, uid)


def on_lease_ack(run: Run, member: Member, message: LeaseAck) -> None:
    """A member wants its next lease: give it one, unless it has that already."""
    if run.ledger.newest(member.uid) in (0, message.lease_id):
        supply(run, member.uid)


def _ms(run: Run, uid: str) -> float | None:
    elche = run.cadence
    return elche.ms_of(uid) if elche.is_calibrated else None


def _size(run: Run, uid: str, epoch: int) -> int:
    ms = _ms(run, uid)
    catch_up = None
    if ms is not None:
        latest = run.horizon.latest_other(uid)
        if latest is not None:
            own = max(run.now, run.horizon.ends.get(uid, run.now))
            catch_up = max(0, int((latest - own) * 1000 / ms))
    return lease_batches(
        Demand(
            remaining=run.ledger.free_batches(epoch),
            world=len(run.world),
            epoch=run.settings.plan.epoch_batches,
            count=None if ms is None else run.counts[uid],
            total=run.total_count,
            catch_up=catch_up,
        )
    )


def _tell_end(run: Run, uid: str) -> None:
    """Let a member end its window when it runs out of work."""
    window = run.window
    if window is None or window.state not in (WindowState.OPEN, WindowState.CLOSING):
        return
    target = window.targets.get(uid)
    if target is None or target.at_end or uid in window.arrived:
        return
    window.targets[uid] = dataclasses.replace(target, at_end=True)
    run.send(
        uid,
        SyncNow(window=window.number, payload=window.payload, target=window.targets[uid]),
    )
