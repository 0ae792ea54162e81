"""How a window opens, fills up at its barrier and is averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from flodl.distributed.config import Timeouts
from flodl.distributed.controller.commands import Persist, PublishProgress
from flodl.distributed.controller.roster import Member
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.controller.tallies import add_window, row_of
from flodl.distributed.controller.window import Window, WindowState
from flodl.distributed.controller.work import leasable_epoch
from flodl.distributed.elche.weights import total_weight
from flodl.distributed.protocol.messages import (
    AtBarrier,
    Reduced,
    ReduceGo,
    SyncNow,
    WindowReport,
)
from flodl.distributed.protocol.ranges import cut
from flodl.distributed.protocol.values import Target

SLOW_WINDOW = 10
LONGEST_LAST = 1.25
"""Windows that the end of an epoch may last: a quarter more than one is cheaper than two."""
PATIENCE = 2.0
"""Batches of the slowest member that those at the barrier wait; half of one is usual."""
LEAST_PATIENCE_S = 0.1
"""Less than that is what a busy host takes now and then."""
MOST_BAD_WINDOWS = 3
CLOSE_NOW = Target(steps=0)


def plan_window(run: Run) -> Window:
    """Make the next window the current one, with a target for each member."""
    run.last_window += 1
    run.window = Window(
        number=run.last_window,
        members=run.world,
        payload=run.settings.elche.payload,
        opened_at=run.now,
        targets=_targets(run),
    )
    predicted = run.cadence.anchor_wall_ms / 1000
    run.clear_deadlines("slow_window", "barrier", "ahead", "reduce", "snapshot")
    if predicted > 0 and not run.is_grads:
        run.set_deadline("slow_window", SLOW_WINDOW * predicted + run.settings.timeouts.heartbeat)
    return run.window


def announce(run: Run, window: Window) -> None:
    """Tell every member when the window ends."""
    for target, uids in by_target(window.targets).items():
        run.broadcast(_sync_now(window, target), uids)


def by_target(targets: Mapping[str, Target]) -> dict[Target, list[str]]:
    """Return the members that share each target, so that one message serves them all."""
    found: dict[Target, list[str]] = {}
    for uid, target in targets.items():
        found.setdefault(target, []).append(uid)
    return found


def _targets(run: Run) -> dict[str, Target]:
    """Return when each member ends the window.

    Gradients: together, when the epoch's leases are used up. Sync: after one step. Cadence: when
    the time of the slowest rank's batches has passed, which adapts to a rank that slows down
    within the window. While uncalibrated, under a schedule, and in async mode: after its count.
    """
    config = run.settings.elche
    if run.is_grads:
        steps = max(run.ledger.untrained_batches(uid) for uid in run.world)
        return dict.fromkeys(run.world, Target(steps=steps))
    at_end = leasable_epoch(run) is None
    if config.mode.is_sync:
        return dict.fromkeys(run.world, Target(steps=1, at_end=at_end))
    run.take_counts()
    counts, elche = run.counts, run.cadence
    limit = config.max_batch_diff
    most = None if limit is None else min(counts.values()) + limit
    if config.mode.is_cadence and elche.is_calibrated and config.deterministic is None:
        wall_ms = elche.anchor_wall_ms
        if _rest_ms(run) <= LONGEST_LAST * wall_ms:
            wall_ms *= LONGEST_LAST
        return {
            uid: Target(steps=most, wall_ms=max(1e-3, wall_ms - slack), at_end=at_end)
            for uid, slack in elche.slack_of(run.world).items()
        }
    capped = {uid: count if most is None else min(count, most) for uid, count in counts.items()}
    # Under a schedule nobody trains past its count: how far one came would be a matter of time.
    runs_ahead = run.is_async and config.deterministic is None
    overshoot = run.overshoot.value if runs_ahead else 0
    return {
        uid: Target(steps=steps, at_end=at_end, overshoot=overshoot)
        for uid, steps in capped.items()
    }


def _rest_ms(run: Run) -> float:
    """Return how long all members together need for what is left of the open epochs."""
    left = sum(map(run.ledger.free_batches, run.ledger.open_epochs))
    left += sum(map(run.ledger.untrained_batches, run.world))
    speeds = [1 / ms for uid in run.world if (ms := run.cadence.ms_of(uid)) is not None]
    return left / sum(speeds) if speeds else math.inf


def close_now(run: Run) -> None:
    """End the current window at each rank's next boundary."""
    window = run.window
    assert window is not None
    window.targets = dict.fromkeys(window.members, CLOSE_NOW)
    window.ahead.clear()
    if window.state is WindowState.OPEN:
        window.state = WindowState.CLOSING
    announce(run, window)


def current(run: Run, number: int) -> Window | None:
    """Return the window of that number if it is the current one and not over."""
    window = run.window
    if window is None or window.number != number:
        return None
    return window if window.state not in (WindowState.COMMITTED, WindowState.VOID) else None


def on_window_report(run: Run, member: Member, message: WindowReport) -> bool:
    """Take what a member did; returns whether a window of gradient steps is complete."""
    window = current(run, message.window)
    if window is None:
        return False
    before = window.reports.get(member.uid)
    window.reports[member.uid] = message
    run.ledger.report(member.uid, message.trained, marks=True)
    if not run.is_grads or (before is not None and before.steps > message.steps):
        return False
    _note_bad_steps(run, member, window, message)
    done = run.ledger.commit(member.uid, message.left_out)
    run.global_step += done.batches
    add_window(run.tallies, member.uid, message, done)
    row = row_of(message, steps=done.batches, samples=done.samples)
    run.emit(
        PublishProgress(uid=member.uid, epoch=run.epoch, global_step=run.global_step, values=row)
    )
    steps = window.targets[member.uid].steps
    return all(
        uid in window.reports and window.reports[uid].steps == steps for uid in window.members
    )


def _note_bad_steps(run: Run, member: Member, window: Window, message: WindowReport) -> None:
    """Tell of gradient steps that all ranks have left out, as one of them was not finite."""
    member.bad_windows = 0 if message.is_finite else member.bad_windows + 1
    if message.is_finite:
        return
    place, rule = _whereabouts(run, member.uid), run.settings.on_nonfinite
    if rule == "raise" or (rule == "quarantine" and member.bad_windows >= MOST_BAD_WINDOWS):
        run.go(RunState.FAILED, f"nonfinite: {place} in window {window.number}")
    else:
        text = f"{place}: all ranks have left such steps out"
        run.alert("nonfinite", text, fields={"uids": [member.uid]})


def on_at_barrier(run: Run, member: Member, message: AtBarrier) -> bool:
    """Count a member as ready; returns whether nothing has to be averaged in this window."""
    window = current(run, message.window)
    if window is None or window.state is WindowState.REDUCING:
        return False
    if "barrier" not in run.deadlines:
        _expect_all(run)
        if run.is_async and run.cadence.is_calibrated:
            run.set_deadline("snapshot", _patience(run, window))
    window.arrived[member.uid] = message
    window.ahead.discard(member.uid)
    if window.state is WindowState.OPEN:
        window.state = WindowState.CLOSING
    if "ahead" not in run.deadlines and window.targets[member.uid].wall_ms is not None:
        slowest_s = run.cadence.anchor_wall_ms / run.cadence.anchor / 1000
        run.set_deadline("ahead", max(LEAST_PATIENCE_S, PATIENCE * slowest_s))
    if window.ahead and not window.missing:
        _call_back(run, window)
    return window.is_complete and _start_reduce(run, window)


def _expect_all(run: Run) -> None:
    """Give up the members that come to the barrier much later than predicted."""
    predicted = run.cadence.anchor_wall_ms / 1000
    run.set_deadline("barrier", run.settings.timeouts.barrier(predicted))


def let_run_ahead(run: Run) -> None:
    """Have the members at the barrier train on, since a batch of another one takes very long.

    The window ends when that one is there. Only time ends a window that early: a count, a last
    window, and a window that is to end at once are left as they are.
    """
    window = run.window
    if window is None or window.state is not WindowState.CLOSING or not window.missing:
        return
    for uid, arrived in [*window.arrived.items()]:
        target = window.targets[uid]
        has_work = run.ledger.untrained_batches(uid) > 0
        if target.wall_ms is not None and has_work and arrived.is_finite:
            del window.arrived[uid]
            window.ahead.add(uid)
            window.targets[uid] = replace(target, wall_ms=None)
            run.send(uid, _sync_now(window, window.targets[uid]))


def _call_back(run: Run, window: Window) -> None:
    """End the window of those that train on, at the next boundary of each."""
    _expect_all(run)
    for uid in sorted(window.ahead):
        window.targets[uid] = CLOSE_NOW
        run.send(uid, _sync_now(window, CLOSE_NOW))
    window.ahead.clear()


def _sync_now(window: Window, target: Target) -> SyncNow:
    return SyncNow(window=window.number, payload=window.payload, target=target)


def _patience(run: Run, window: Window) -> float:
    """Return seconds in which all snapshots must be there: those predicted, and a grace."""
    settings, default = run.settings, Timeouts().snapshot
    grace = settings.elche.snapshot_timeout * settings.timeouts.snapshot / default
    spent = run.now - window.opened_at
    expected = [
        (window.targets[uid].steps or 0) * (run.cadence.ms_of(uid) or 0.0) / 1000 - spent
        for uid in window.members
    ]
    return max(0.0, *expected) + grace


def go_on_without(run: Run) -> bool:
    """Average without the members whose snapshots are late; what they trained counts later.

    Returns whether nothing has to be averaged in this window. Members in a callback are waited
    for: they could not take part in the collective either.
    """
    window = run.window
    if window is None or window.state is not WindowState.CLOSING:
        return False
    if run.desk.busy & set(window.missing) or not any(map(window.samples, window.members)):
        run.set_deadline("snapshot", _patience(run, window))
        return False
    window.late = tuple(window.missing)
    run.history.late_snapshots += len(window.late)
    names = ", ".join(f"rank{run.roster.members[uid].number}" for uid in window.late)
    text = f"window {window.number} goes on without the snapshot of {names}"
    run.alert("snapshot_late", text, fields={"uids": list(window.late)})
    return _start_reduce(run, window)


def _start_reduce(run: Run, window: Window) -> bool:
    run.clear_deadlines("barrier", "ahead", "slow_window", "snapshot")
    if not _agree(run, window) or not _exclude_nonfinite(run, window):
        return False
    gamma = run.settings.elche.gamma
    samples = [window.samples(uid) for uid in window.members if uid not in window.excluded]
    total = total_weight(samples, gamma)
    window.reduce_at = run.now
    if total == 0:
        return True
    window.state = WindowState.REDUCING
    deadline = run.settings.timeouts.reduce(run.reduce_ema_s)
    run.set_deadline("reduce", deadline)
    # Before anyone can have the result: a restarted controller must know what it consists of.
    run.emit(Persist(reason="reduce"))
    run.broadcast(
        ReduceGo(
            window=window.number,
            total_weight=total,
            gamma=gamma,
            participants=len(window.members),
            deadline=deadline,
            excluded=window.excluded,
            late=window.late,
        )
    )
    return False


def _agree(run: Run, window: Window) -> bool:
    """Check that all payloads have one size: a collective of different ones ends processes."""
    hashes = {arrived.payload_hash for arrived in window.arrived.values()}
    if len(hashes) == 1:
        return True
    who = ", ".join(f"{uid} {arrived.payload_hash}" for uid, arrived in window.arrived.items())
    run.go(RunState.FAILED, f"payload_mismatch: ranks would average different things: {who}")
    return False


def _exclude_nonfinite(run: Run, window: Window) -> bool:
    """Leave out members whose payload is not finite; returns whether the run goes on."""
    there = [uid for uid in window.members if uid in window.arrived]
    bad = [uid for uid in there if not window.arrived[uid].is_finite]
    members = run.roster.members
    for uid in there:
        members[uid].bad_windows = members[uid].bad_windows + 1 if uid in bad else 0
    window.excluded = tuple(bad)
    if not bad:
        return True
    rule = run.settings.on_nonfinite
    worst = max(members[uid].bad_windows for uid in bad)
    steps = ", ".join(_whereabouts(run, uid) for uid in bad)
    is_fatal = rule == "raise" or (
        rule == "quarantine" and (len(bad) == len(there) or worst >= MOST_BAD_WINDOWS)
    )
    if is_fatal:
        run.go(RunState.FAILED, f"nonfinite: {steps} in window {window.number}")
        return False
    text = f"{steps}: left out of window {window.number}"
    run.alert("nonfinite", text, fields={"uids": list(bad)})
    return True


def _whereabouts(run: Run, uid: str) -> str:
    """Return which rank a member is, and what it trained in this window."""
    member = run.roster.members[uid]
    parts = [
        f"{low}-{high} of epoch {work.epoch}"
        for work in run.ledger.held(uid)
        for low, high in cut(work.ranges, work.committed, work.marked)
    ]
    samples = f" (samples {', '.join(parts)})" if parts else ""
    return f"rank{member.number} at step {member.step}{samples}"


def on_reduced(run: Run, member: Member, message: Reduced) -> bool:
    """Take a member's result; returns whether every member has it."""
    window = current(run, message.window)
    if window is None or window.state is not WindowState.REDUCING:
        return False
    window.reduced[member.uid] = message
    if not message.ok:
        run.go(RunState.RECONFIGURING, f"reduce_failed: {message.error}")
        return False
    member.version = window.number
    return window.is_reduced


def on_slow_window(run: Run) -> None:
    """The window has lasted ten times as long as predicted."""
    window = run.window
    if window is not None:
        names = ", ".join(f"rank{run.roster.members[uid].number}" for uid in window.missing[:8])
        run.alert("slow_window", f"window {window.number} waits for {names}")
