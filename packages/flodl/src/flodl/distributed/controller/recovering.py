"""Ends a generation: who is lost, what of the open window counts, who comes in."""

from __future__ import annotations

from flodl.distributed.controller.callbacks import on_member_lost, start_waiting
from flodl.distributed.controller.commands import Persist, WriteDeath
from flodl.distributed.controller.committing import commit, roll_over
from flodl.distributed.controller.ending import end_without_loss
from flodl.distributed.controller.roster import Member, MemberState
from flodl.distributed.controller.run import Ending, Recovery, Run, RunState
from flodl.distributed.controller.tallies import add_work
from flodl.distributed.controller.window import WindowState
from flodl.distributed.controller.work import open_next_epoch
from flodl.distributed.protocol.messages import Fence, Fenced, Quiesced, RankExit, Reconfigure
from flodl.distributed.protocol.ranges import beyond
from flodl.distributed.protocol.values import Plain, Ranges

WITH_GENERATION = frozenset(
    {RunState.FORMING, RunState.TRAINING, RunState.RECONFIGURING, RunState.DRAINING}
)
MOST_STALLS = 1
RESTART_BEATS = 2
"""Heartbeats in which a host that starts a process again will have said so."""
UNSEEN = "unseen"
"""Cause of a death that was told to a controller which died as well, until it is told again."""


def joiners_are_due(run: Run) -> bool:
    """Return whether members wait to come in, and the last growth is long enough ago."""
    elastic = run.settings.elastic
    if not elastic.rejoin or not run.roster.count(MemberState.READY):
        return False
    return run.now - run.last_growth >= elastic.grow_interval


def begin(run: Run) -> None:
    """Stop everyone under a new generation."""
    run.gen += 1
    run.clear_deadlines("formation", "barrier", "ahead", "reduce", "slow_window", "snapshot")
    run.recovery.reason = run.reason
    run.recovery.quiesced.clear()
    for member in run.active():
        if member.cause:
            fence(run, member, member.cause)
    survivors = run.active()
    run.recovery.awaiting = {member.uid for member in survivors}
    run.broadcast(reconfigure(run), [member.uid for member in survivors])
    run.set_deadline("quiesce", _patience(run, survivors))
    settle(run)


def _patience(run: Run, survivors: list[Member]) -> float:
    """Return seconds in which survivors must stand still; a callback is not interrupted."""
    timeouts = run.settings.timeouts
    if any(member.is_awaited for member in survivors):
        return timeouts.controller_grace
    is_busy = any(member.uid in run.desk.busy for member in survivors)
    return timeouts.eval_callback if is_busy else timeouts.formation


def reconfigure(run: Run) -> Reconfigure:
    """Return the message that ends the generation."""
    return Reconfigure(
        gen=run.gen,
        reason=run.recovery.reason,
        lost=tuple(run.recovery.lost),
        joined=tuple(member.uid for member in run.roster.in_state(MemberState.READY)),
    )


def fence(run: Run, member: Member, cause: str) -> None:
    """Give a member up: its host kills it, and its work is free once that is certain."""
    if not member.is_alive:
        return
    was_active = member.state is MemberState.ACTIVE
    member.state, member.cause, member.since = MemberState.FENCING, cause, run.now
    ack = run.settings.timeouts.fence_ack
    run.send_host(member.host, Fence(uid=member.uid, incarnation=member.incarnation, deadline=ack))
    run.recovery.fencing.add(member.uid)
    run.set_deadline(f"fence:{member.uid}", ack)
    if was_active and run.state in WITH_GENERATION:
        run.recovery.awaiting.discard(member.uid)
        if run.state is not RunState.RECONFIGURING:
            run.go(RunState.RECONFIGURING, cause)


def _order_fence(run: Run, member: Member) -> None:
    ack = run.settings.timeouts.fence_ack
    order = Fence(uid=member.uid, incarnation=member.incarnation, deadline=ack)
    run.send_host(member.host, order)
    run.set_deadline(f"fence:{member.uid}", ack)


def on_fence_overdue(run: Run, uid: str) -> None:
    """The host did not confirm: ask again while it is there, else wait for its own lease to end."""
    member, timeouts = run.roster.members[uid], run.settings.timeouts
    host = run.roster.hosts.get(member.host)
    seen_at = member.since if host is None else host.seen_at
    if run.now - seen_at >= timeouts.dead:
        lose(run, member, member.cause)
    elif run.now - seen_at < timeouts.suspect:
        _order_fence(run, member)
    else:
        run.deadlines[f"fence:{uid}"] = seen_at + timeouts.dead


def on_fenced(run: Run, message: Fenced) -> None:
    """The host has killed a process."""
    member = run.roster.members.get(message.uid)
    if member is None or member.incarnation != message.incarnation:
        return
    if member.state is MemberState.FENCING:
        lose(run, member, member.cause)


def on_rank_exit(run: Run, message: RankExit) -> None:
    """A process has ended: in good order after a goodbye, otherwise it is a death."""
    member = run.roster.members.get(message.uid)
    if member is None or member.incarnation != message.incarnation:
        _explain(run, message)
        return
    if member.state is MemberState.LEFT and message.code == 0:
        return
    if member.state is MemberState.LOST:
        return
    cause = member.cause or _cause(message)
    lose(run, member, cause, log_tail=message.log_tail, last_step=message.last_step)


def _explain(run: Run, message: RankExit) -> None:
    """Complete the record of a death of which only the successor was seen."""
    for death in run.history.deaths:
        is_it = (death["uid"], death["incarnation"]) == (message.uid, message.incarnation)
        if is_it and death["cause"] == UNSEEN:
            death |= {"cause": _cause(message), "log_tail": message.log_tail}
            death["last_step"] = message.last_step
            number = run.roster.members[message.uid].number
            run.alert("rank_lost", f"rank{number} was lost: {death['cause']}", fields=death)
            run.emit(WriteDeath(number=number, details=death))


def _cause(message: RankExit) -> str:
    if message.is_oom_killed:
        return "oom_killed"
    if message.signal is not None:
        return f"signal {message.signal}"
    return "cuda" if message.code == 75 else f"exit {message.code}"


def lose(run: Run, member: Member, cause: str, **details: Plain) -> None:
    """Count a member as lost, and end the generation if it was part of it."""
    was = member.state
    member.state, member.cause, member.since = MemberState.LOST, cause, run.now
    member.is_suspect = member.is_awaited = False
    run.clear_deadlines(f"fence:{member.uid}", f"boot:{member.uid}")
    run.recovery.fencing.discard(member.uid)
    run.recovery.awaiting.discard(member.uid)
    _tell_loss(run, member, cause, details)
    if was in (MemberState.BOOTING, MemberState.READY):
        if run.ending is not None and run.ending.is_failed:
            end_without_loss(run)
        elif cannot_start(run):
            run.set_deadline("restart", RESTART_BEATS * run.settings.timeouts.heartbeat)
        return
    if member.uid in run.world:
        run.recovery.lost.append(member.uid)
    for tally in run.tallies.values():
        tally.lost.append(member.number)
    on_member_lost(run, member.uid)
    limit = run.settings.max_failures
    if limit is not None and len(run.history.deaths) > limit and run.ending is None:
        run.ending = Ending(reason="max_failures", is_failed=True)
    _LOSS_IN.get(run.state, _take_back_work)(run, cause)


def cannot_start(run: Run) -> bool:
    """Return whether all who were to come have come, and too few of them are left to begin."""
    rules = run.settings.join
    if run.started or run.state is not RunState.WAITING or rules.target is None:
        return False
    members = list(run.roster)
    there = sum(member.is_alive for member in members)
    return len(members) >= rules.target and there < rules.least


def _end_generation(run: Run, cause: str) -> None:
    run.go(RunState.RECONFIGURING, f"lost: {cause}")


def _still_recovering(run: Run, cause: str) -> None:  # noqa: ARG001
    settle(run)


def _while_saving(run: Run, cause: str) -> None:
    """Let another member do what the lost one did; nobody left is the end.

    Once goodbyes were said all was done, and it is no matter how a process ends.
    """
    if "bye" in run.deadlines:
        return
    if run.active():
        start_waiting(run)
    elif run.ending is None or not run.ending.is_failed:
        run.go(RunState.FAILED, f"all_ranks_lost: {cause}")


def _take_back_work(run: Run, cause: str) -> None:  # noqa: ARG001
    """Free the work of a member that was lost while everyone stood still."""
    for uid in run.recovery.lost:
        run.ledger.release(uid)
    run.recovery.lost.clear()


_LOSS_IN = {
    RunState.FORMING: _end_generation,
    RunState.TRAINING: _end_generation,
    RunState.DRAINING: _end_generation,
    RunState.RECONFIGURING: _still_recovering,
    RunState.SAVING: _while_saving,
}


def _tell_loss(run: Run, member: Member, cause: str, details: dict[str, Plain]) -> None:
    death: dict[str, Plain] = {
        "rank": member.number,
        "uid": member.uid,
        "host": member.host,
        "cause": cause,
        "incarnation": member.incarnation,
        "generation": run.gen,
        "last_step": member.step,
        **details,
    }
    run.history.deaths.append(death)
    text = f"rank{member.number} on {member.host} is lost: {cause}"
    run.alert("rank_lost", text, fields=death)
    run.emit(WriteDeath(number=member.number, details=death))
    run.emit(Persist(reason="loss"))  # its host will not tell it to another controller


def on_quiesced(run: Run, member: Member, message: Quiesced) -> None:
    """Take how far a survivor has come.

    One that says so without being asked was told by its host to stand still while the controller
    could not be reached, and is taken along in a new generation.
    """
    if run.state is not RunState.RECONFIGURING:
        run.go(RunState.RECONFIGURING, f"rank{member.number} stands still")
        return
    if member.uid not in run.recovery.awaiting:
        return
    run.recovery.awaiting.discard(member.uid)
    run.recovery.quiesced[member.uid] = message
    # it may not have heard of the commit of a window in which there was nothing to average
    member.version = max(member.version, message.version)
    member.window_steps = message.steps
    member.is_awaited = False
    run.ledger.report(member.uid, message.trained, marks=run.is_grads)
    settle(run)


def on_overdue(run: Run) -> None:
    """Give up the members that did not stop."""
    for uid in sorted(run.recovery.awaiting):
        fence(run, run.roster.members[uid], "quiesce")
    settle(run)


def settle(run: Run) -> None:
    """Go on once every survivor stands still and every other is certainly gone."""
    if run.recovery.awaiting or run.recovery.fencing or run.state is not RunState.RECONFIGURING:
        return
    run.clear_deadlines("quiesce")
    _decide_window(run)
    roll_over(run)
    _adopt_leases(run)
    for uid in (*run.recovery.lost, *_laggards(run)):
        run.ledger.release(uid)
        run.horizon.forget(uid)
    reason = run.recovery.reason
    run.recovery = Recovery()
    run.emit(Persist(reason="recovery"))
    if run.roster.count(MemberState.READY):
        run.last_growth = run.now
    _next(run, reason)


def _decide_window(run: Run) -> None:
    """Commit the open window if a survivor has its result, else let its work count later."""
    window = run.window
    if window is None:
        return
    answers = run.recovery.quiesced
    if run.is_grads:
        _count_steps(run)
    elif window.state is WindowState.REDUCING and (
        window.completed_by_one_of(answers)
        or any(answer.version >= window.number for answer in answers.values())
    ):
        commit(run, window)
        return
    window.state = WindowState.VOID
    run.history.void_windows += 1


def _count_steps(run: Run) -> None:
    """Commit the gradient steps that a survivor completed, those of lost members included."""
    window, answers = run.window, run.recovery.quiesced
    assert window is not None
    most = max((answer.steps for answer in answers.values()), default=0)
    left_out = max((answer.left_out for answer in answers.values()), key=_end, default=())
    for uid in window.members:
        answer, report = answers.get(uid), window.reports.get(uid)
        told = report.steps if report else 0
        known = answer.steps if answer else told
        for done in (
            run.ledger.commit(uid, beyond(left_out, told)),
            run.ledger.advance(uid, most - known, beyond(left_out, known)),
        ):
            run.global_step += done.batches
            add_work(run.tallies, uid, done)


def _end(ranges: Ranges) -> int:
    return ranges[-1][1] if ranges else 0


def _adopt_leases(run: Run) -> None:
    """Take over leases that were given after this controller's journal was written."""
    for uid, answer in run.recovery.quiesced.items():
        for lease in answer.leases:
            if lease.epoch == run.next_epoch:
                open_next_epoch(run, hands_out=False)
            run.ledger.adopt(uid, lease)
        run.ledger.report(uid, answer.trained, marks=False)


def _laggards(run: Run) -> list[str]:
    """Return survivors that take over a state which holds other work than they have done.

    Where ranks wait for the average nobody trains past it, so there are none then.
    """
    answers = run.recovery.quiesced
    most = max((answer.steps for answer in answers.values()), default=0)
    found = []
    for uid, answer in answers.items():
        is_behind = run.is_grads and answer.steps < most
        is_past = run.is_async and answer.version < run.version
        if is_behind or is_past:
            run.roster.members[uid].is_new = True
            found.append(uid)
    return found


def _next(run: Run, reason: str) -> None:
    members = run.roster.in_state(MemberState.ACTIVE, MemberState.READY)
    if not members:
        _nobody(run)
    elif len(members) < run.settings.elastic.min_ranks:
        run.go(RunState.WAITING, "below_min_ranks")
    elif reason.startswith("reduce_stall") and _has_stalled_before(run):
        run.ending = Ending(reason="reduce_stall", is_failed=True)
        run.go(RunState.SAVING, "reduce_stall")
    else:
        run.go(RunState.FORMING)


def _has_stalled_before(run: Run) -> bool:
    run.stalled_reduces += 1
    return run.stalled_reduces > MOST_STALLS


def _nobody(run: Run) -> None:
    """Wait for members that are started again, if what was learned is kept for them."""
    lost = [run.roster.members[uid] for uid in run.world]
    may_come_back = any(member.cause == "cuda" for member in lost)
    is_kept = run.settings.is_durable and run.version > 0
    if may_come_back and is_kept and run.ending is None and run.settings.elastic.respawn:
        run.go(RunState.WAITING, "all_ranks_lost")
    else:
        run.go(RunState.FAILED, "all_ranks_lost" if run.ending is None else run.ending.reason)
