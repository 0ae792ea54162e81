"""Ends a run: in good order after a last window, at once, or because it cannot go on."""

from __future__ import annotations

import dataclasses

from flodl.distributed.controller.callbacks import queue_final, start_waiting
from flodl.distributed.controller.commands import Finish, Persist, SaveKept
from flodl.distributed.controller.events import AbortRequested, StopRequested
from flodl.distributed.controller.roster import Member, MemberState
from flodl.distributed.controller.run import Ending, Run, RunState
from flodl.distributed.controller.window import WindowState
from flodl.distributed.controller.windows import close_now, plan_window
from flodl.distributed.protocol.messages import Abort, Bye, RankError, Stop
from flodl.distributed.protocol.values import Plain

STOPPABLE = frozenset({RunState.TRAINING})
DRAIN_SHARE = 2 / 3
BEFORE_TRAINING = frozenset({RunState.INIT, RunState.WAITING, RunState.STAGING})


def on_stop(run: Run, event: StopRequested) -> None:
    """End in good order: what is trained is averaged once more."""
    stop(run, Ending(reason=event.reason, save=event.save))


def stop(run: Run, ending: Ending) -> None:
    """End for the given reason, unless the run is ending already."""
    if run.ending is not None:
        return
    run.ending = ending
    run.broadcast(Stop(save=ending.save, reason=ending.reason), [m.uid for m in run.active()])
    if run.state in BEFORE_TRAINING:
        run.go(RunState.SAVING if run.active() else RunState.FAILED, ending.reason)
    else:
        _leave_training(run, ending)


def end_without_loss(run: Run) -> None:
    """Go on to the end that an error calls for, where the rank that raised it had no part yet.

    Before training others are given a moment to raise the same: it is told with their number.
    """
    assert run.ending is not None
    if run.state in BEFORE_TRAINING and not run.active():
        if _present(run):
            run.set_deadline("drain", run.settings.timeouts.heartbeat)
        else:
            run.go(RunState.FAILED, run.ending.reason)
    elif run.state in BEFORE_TRAINING:
        run.go(RunState.SAVING, run.ending.reason)
    else:
        _leave_training(run, run.ending)


def _leave_training(run: Run, ending: Ending) -> None:
    expect_end(run)
    if run.state in STOPPABLE:
        # Ranks that average each gradient cannot be told to stop at the same step: they are
        # stopped as for a change of members, and then have one state.
        run.go(RunState.RECONFIGURING if run.is_grads else RunState.DRAINING, ending.reason)


def expect_end(run: Run) -> None:
    """Give members a time for their last window; with what is left others end without them."""
    if "drain" not in run.deadlines:
        run.set_deadline("drain", DRAIN_SHARE * run.settings.timeouts.drain)


def on_abort(run: Run, event: AbortRequested) -> None:
    """End at once."""
    run.go(RunState.FAILED, event.reason)


def on_rank_error(run: Run, member: Member, message: RankError) -> None:
    """A rank raised: the run ends, unless such ranks are to be evicted."""
    key = f"{message.type_name}: {message.message}"
    run.history.error_counts[key] = run.history.error_counts.get(key, 0) + 1
    member.cause = message.kind
    if run.history.error_counts[key] > 1:
        return
    run.history.errors.append(message)
    is_evicted = _is_evicted(run, message)
    run.alert(
        "rank_error", f"rank{member.number}: {key}", "error", {"traceback": message.traceback}
    )
    if not is_evicted and run.ending is None:
        # The rank exits by itself, and its loss ends the generation: only then can others drain.
        run.ending = Ending(reason=f"{message.kind}_error", is_failed=True)
        run.set_deadline("drain", run.settings.timeouts.drain + run.settings.timeouts.terminate)


def _is_evicted(run: Run, message: RankError) -> bool:
    """Return whether only the rank that raised is lost, and not the run."""
    match message.kind:
        case "cuda":
            return True
        case "oom":
            return run.settings.oom_policy != "fail"
        case "user":
            return run.settings.elastic.on_user_exception == "evict"
    return False


def drain(run: Run) -> None:
    """Let everyone end its window and average once more."""
    expect_end(run)
    if run.is_grads:
        run.go(RunState.SAVING, run.reason)
        return
    window = run.window
    if window is None:
        window = plan_window(run)
    if window.state is not WindowState.REDUCING:
        close_now(run)


def save(run: Run) -> None:
    """Let a member write what is to be kept, then say goodbye."""
    run.clear_deadlines(
        "drain", "barrier", "ahead", "reduce", "snapshot", "slow_window", "join_window", "join_cap"
    )
    run.window = None
    run.emit(Persist(reason="saving"))
    ending = run.ending
    if run.active():
        reason = "checkpoint" if ending is None else ending.reason
        queue_final(run, reason, save=ending is None or ending.save)
        start_waiting(run)
    finish_if_idle(run)


def finish_if_idle(run: Run) -> None:
    """Say goodbye once nothing is left to do; end once everyone has left."""
    if run.state is not RunState.SAVING or not run.desk.is_idle:
        return
    if "bye" not in run.deadlines:
        run.set_deadline("bye", run.settings.timeouts.terminate)
        run.broadcast(Bye(reason="done"), [member.uid for member in _present(run)])
    if not _present(run):
        is_failed = run.ending is not None and run.ending.is_failed
        reason = "" if run.ending is None else run.ending.reason
        run.go(RunState.FAILED if is_failed else RunState.DONE, reason)


def _present(run: Run) -> list[Member]:
    return run.roster.in_state(MemberState.ACTIVE, MemberState.READY, MemberState.BOOTING)


def on_bye(run: Run, member: Member) -> None:
    """A rank leaves in good order; before the end that is a loss like any other."""
    if run.state is RunState.SAVING and member.is_alive:
        member.state, member.since = MemberState.LEFT, run.now
        finish_if_idle(run)


def on_goodbyes_overdue(run: Run) -> None:
    """Do not wait any longer for ranks that had everything to say."""
    for member in _present(run):
        member.state = MemberState.LOST
    finish_if_idle(run)


def finish(run: Run) -> None:
    """Tell hosts that all is over, and give the launcher its result."""
    is_failed = run.state is RunState.FAILED
    run.deadlines.clear()
    if is_failed and run.settings.is_durable and run.version > 0 and not run.active():
        run.emit(SaveKept(reason=run.reason))
    for host in run.roster.hosts:
        run.send_host(host, Abort(reason=run.reason) if is_failed else Bye(reason="done"))
    has_lost = any(member.state is MemberState.LOST for member in run.roster)
    run.emit(Persist(reason="over"))
    run.emit(
        Finish(
            reason=run.reason or "done",
            is_failed=is_failed,
            is_partial=has_lost,
            errors=tuple(run.history.errors),
            report=report(run),
        )
    )


def report(run: Run) -> dict[str, Plain]:
    """Return what is to be told about the run: accounts, deaths, generations and windows."""
    accounts = [*run.ledger.accounts, *map(run.ledger.account, run.ledger.open_epochs)]
    return {
        "accounting": [dataclasses.asdict(account) for account in accounts],
        "deaths": list(run.history.deaths),
        "generations": list(run.history.generations),
        "windows": list(run.history.windows),
        "void_windows": run.history.void_windows,
        "abort_count": run.history.late_snapshots,
        "stale_messages": run.history.stale_messages,
        "errors": dict(run.history.error_counts),
        "global_step": run.global_step,
    }
