"""Who is still there: silence of hosts, stale progress of ranks, ranks that run too far ahead."""

from __future__ import annotations

from flodl.distributed.controller.ending import BEFORE_TRAINING, stop
from flodl.distributed.controller.forming import missing
from flodl.distributed.controller.recovering import fence, lose, settle
from flodl.distributed.controller.roster import Host, Member, MemberState
from flodl.distributed.controller.run import Ending, Run, RunState
from flodl.distributed.elche import throttled
from flodl.distributed.protocol.messages import Progress, Resume, Throttle
from flodl.distributed.protocol.values import RankProgress

THROTTLE_INTERVAL = 1e-4
"""Seconds between two looks at who is too far ahead, for each member."""


def watch(run: Run) -> None:
    """Look at every host and rank; done once per heartbeat."""
    run.set_deadline("watch", run.settings.timeouts.heartbeat)
    for host in run.roster.hosts.values():
        _watch_host(run, host)
    if run.state is RunState.TRAINING:
        busy = run.desk.busy
        for member in run.active():
            _watch_steps(run, member, busy)


def _watch_host(run: Run, host: Host) -> None:
    timeouts, silence = run.settings.timeouts, run.now - host.seen_at
    if silence >= timeouts.dead:
        for member in run.roster.in_state(
            MemberState.ACTIVE, MemberState.READY, MemberState.BOOTING, MemberState.FENCING
        ):
            # A host that was cut off has stopped its ranks by now: its own lease is shorter.
            if member.host == host.name and not member.is_awaited:
                lose(run, member, member.cause or "partition")
    elif silence >= timeouts.suspect and not host.is_suspect:
        host.is_suspect = True
        members = run.roster.of_host(host.name)
        for member in members:
            member.is_suspect = True
        if members:
            run.alert("host_suspect", f"{host.name} was not heard of for {silence:.0f} s")


def heard(run: Run, name: str) -> None:
    """Note that a host is there, and with it its ranks."""
    run.roster.heard(name, run.now)
    host = run.roster.hosts[name]
    if host.is_suspect:
        host.is_suspect = False
        for member in run.roster.of_host(name):
            member.is_suspect = False


def _watch_steps(run: Run, member: Member, busy: set[str]) -> None:
    window = run.window
    is_waiting = window is None or member.uid in window.arrived or member.uid in run.hungry
    if is_waiting or member.uid in busy:
        member.stepped_at = run.now
    elif run.now - member.stepped_at >= run.settings.timeouts.stall:
        fence(run, member, "stalled")


def on_progress(run: Run, message: Progress) -> None:
    """Take what a host read from the progress pages of its ranks."""
    for row in message.ranks:
        member = run.roster.members.get(row.uid)
        if member is not None and member.is_alive:
            _take_row(run, member, row)
    most = run.settings.elche.max_batch_diff
    if most is not None and run.state is RunState.TRAINING and run.now >= run.throttling.look_at:
        # All are looked at: with hundreds of hosts not for each of their messages.
        run.throttling.look_at = run.now + THROTTLE_INTERVAL * len(run.world)
        _throttle(run, most)


def _take_row(run: Run, member: Member, row: RankProgress) -> None:
    if row.step != member.step:
        member.step, member.stepped_at = row.step, run.now
    member.window_steps, member.phase, member.batch_ms = row.window_steps, row.phase, row.batch_ms
    timeouts = run.settings.timeouts
    if row.beat_age >= timeouts.dead and member.state is not MemberState.BOOTING:
        fence(run, member, "frozen")
    elif row.beat_age >= timeouts.suspect and not member.is_suspect:
        member.is_suspect = True
        run.alert("rank_suspect", f"rank{member.number} shows no sign of life")
    elif row.beat_age < timeouts.suspect:
        member.is_suspect = False


def _throttle(run: Run, most: int) -> None:
    """Hold ranks that are too far ahead of the slowest, and let go those that are not."""
    members = run.roster.members
    steps = {uid: members[uid].window_steps for uid in run.world if members[uid].is_alive}
    arrived = run.window.arrived if run.window is not None else {}
    has_work = {uid: uid not in run.hungry and uid not in arrived for uid in steps}
    ahead = throttled(steps, has_work, most)
    for uid in sorted(ahead - run.throttling.held):
        run.send(uid, Throttle(reason=f"more than {most} steps ahead"))
    for uid in sorted(run.throttling.held - ahead):
        run.send(uid, Resume(reason="the others have caught up"))
    run.throttling.held = ahead


def on_launcher_lost(run: Run) -> None:
    """Go on for a while without the launcher."""
    run.launcher_lost = True
    run.set_deadline("launcher", run.settings.elastic.controller_grace)


def on_launcher_back(run: Run) -> None:
    """A launcher is there again."""
    run.launcher_lost = False
    run.clear_deadlines("launcher")


def on_launcher_overdue(run: Run) -> None:
    """Nobody wants the result any more: save what there is and end."""
    stop(run, Ending(reason="graceful_shutdown"))


def on_quorum_overdue(run: Run) -> None:
    """Not enough members came back."""
    run.ending = Ending(reason="below_min_ranks", is_failed=True)
    run.go(RunState.SAVING if run.active() else RunState.FAILED, "below_min_ranks")


def on_barrier_overdue(run: Run) -> None:
    """Some members never came to the barrier: give them up."""
    window = run.window
    if window is None:
        return
    if run.desk.busy & set(window.missing):
        run.set_deadline("barrier", run.settings.timeouts.barrier_floor)
        return
    for uid in window.missing:
        fence(run, run.roster.members[uid], "barrier")


def on_drain_overdue(run: Run) -> None:
    """The run was to have ended: go on without the members that keep it from ending."""
    reason = run.reason if run.ending is None else run.ending.reason
    if run.state in BEFORE_TRAINING:
        run.go(RunState.FAILED, reason)
        return
    late = _late(run)
    if not late and not run.recovery.fencing:
        run.go(RunState.FAILED, f"{reason}: no last window within its time")
        return
    run.set_deadline("drain", run.settings.timeouts.drain)
    for member in late:
        run.alert("drain_late", f"rank{member.number} keeps the run from ending: given up")
        fence(run, member, "drain")
    settle(run)


def _late(run: Run) -> list[Member]:
    """Return the members that a run waits for which is to end."""
    match run.state:
        case RunState.RECONFIGURING:
            uids = sorted(run.recovery.awaiting)
        case RunState.FORMING:
            uids = missing(run)
        case RunState.DRAINING if run.window is not None:
            uids = run.window.missing
        case _:  # one that raised, and does not exit
            uids = [member.uid for member in run.active() if member.cause]
    return [run.roster.members[uid] for uid in uids]


def on_reduce_overdue(run: Run) -> None:
    """The collective does not end although everyone is alive: try it in a new generation."""
    run.go(RunState.RECONFIGURING, "reduce_stall")
