"""Training: windows follow each other until the work is done or the members change."""

from __future__ import annotations

from flodl.distributed.controller.callbacks import start_waiting
from flodl.distributed.controller.commands import Persist
from flodl.distributed.controller.committing import commit
from flodl.distributed.controller.recovering import joiners_are_due
from flodl.distributed.controller.roster import Member
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.controller.window import Window
from flodl.distributed.controller.windows import (
    announce,
    by_target,
    go_on_without,
    on_at_barrier,
    on_reduced,
    on_window_report,
    plan_window,
)
from flodl.distributed.controller.work import level, open_next_epoch, supply, supply_all
from flodl.distributed.protocol.messages import AtBarrier, Commit, Reduced, WindowReport
from flodl.distributed.protocol.values import Target


def begin(run: Run) -> None:
    """Start the first window of a generation."""
    run.started = True
    run.hungry.clear()
    run.throttling.held.clear()
    for member in run.active():
        member.stepped_at = run.now
        member.window_steps = 0
    if run.ending is not None:
        run.go(RunState.DRAINING, run.ending.reason)
        return
    if not run.ledger.open_epochs:
        open_next_epoch(run)
    if run.is_all_done:
        run.go(RunState.SAVING)
        return
    _foresee(run)
    if not run.settings.is_progressive:
        level(run)
    start_waiting(run)  # what lost members left undone, or a change of members put off
    announce(run, plan_window(run))
    for uid in run.world:
        if not run.ledger.untrained_batches(uid):
            supply(run, uid)
    # Who has taken over state is no newcomer any more, and may train leases from here on.
    run.emit(Persist(reason="training"))


def _foresee(run: Run) -> None:
    """Predict anew when each member will be done with what it holds."""
    for uid in list(run.horizon.ends):
        run.horizon.forget(uid)
    for uid in run.world:
        ms, batches = run.cadence.ms_of(uid), run.ledger.untrained_batches(uid)
        if ms is not None and batches:
            run.horizon.add(uid, batches * ms / 1000, run.now)


def take_report(run: Run, member: Member, message: WindowReport) -> None:
    """Take a window report; with gradients the last one ends the window."""
    if on_window_report(run, member, message):
        _conclude(run)


def take_arrival(run: Run, member: Member, message: AtBarrier) -> None:
    """Take a member at the barrier; a window in which nothing was trained ends at once."""
    if on_at_barrier(run, member, message):
        _conclude(run)


def on_snapshot_overdue(run: Run) -> None:
    """Some snapshots are late: average without them."""
    if go_on_without(run):
        _conclude(run)


def take_result(run: Run, member: Member, message: Reduced) -> None:
    """Take a member's result; the last one commits the window."""
    if on_reduced(run, member, message):
        _conclude(run)


def _conclude(run: Run) -> None:
    """Commit the window and say what follows it."""
    window = run.window
    assert window is not None
    commit(run, window)
    for uid in window.members:
        run.roster.members[uid].window_steps = 0
    run.throttling.held.clear()
    following = _following(run)
    if run.is_grads:
        run.emit(Persist(reason="commit"))  # ranks drop what it counts; no average persists it
    if following is None or following[0] is RunState.SAVING:
        start_waiting(run)  # before anyone is told to train on
    if following is not None:
        _announce_commit(run, window, None)
        run.window = None
        run.go(*following)
    else:
        _announce_commit(run, window, plan_window(run))
        supply_all(run)


def _following(run: Run) -> tuple[RunState, str] | None:
    """Return the state that follows this window instead of another window."""
    if run.is_all_done or run.state is RunState.DRAINING:
        return RunState.SAVING, run.reason
    if joiners_are_due(run):
        return RunState.RECONFIGURING, "join"
    return None


def _announce_commit(run: Run, window: Window, following: Window | None) -> None:
    def message(target: Target | None) -> Commit:
        return Commit(
            window=window.number,
            global_step=run.global_step,
            next_window=run.last_window if following is not None else run.last_window + 1,
            target=target,
            payload=window.payload,
            anchor=run.cadence.anchor,
            lr_scale=run.ramp.value,
        )

    if following is None:
        run.broadcast(message(None), window.members)
        return
    for target, uids in by_target(following.targets).items():
        run.broadcast(message(target), uids)
