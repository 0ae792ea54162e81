"""Lets hosts and ranks in, and decides when enough are there to start."""

from __future__ import annotations

from flodl.distributed.controller.admission import (
    DUPLICATE,
    Refusal,
    has_died_unseen,
    is_back,
    is_duplicate,
    refusal,
    warnings,
)
from flodl.distributed.controller.callbacks import queue_checkpoint, start_waiting
from flodl.distributed.controller.recovering import (
    UNSEEN,
    cannot_start,
    fence,
    lose,
    reconfigure,
)
from flodl.distributed.controller.roster import Member, MemberState
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.protocol.messages import Accept, Hello, Ready
from flodl.distributed.protocol.values import Admission, Offer


def open_door(run: Run) -> None:
    """Begin to wait: for the first members, or for more of them."""
    timeouts = run.settings.timeouts
    if run.started:
        run.set_deadline("quorum", run.settings.elastic.quorum_wait)
        if run.active() and run.version > 0:
            queue_checkpoint(run, "checkpoint")
            start_waiting(run)
    else:
        run.set_deadline("join_window", timeouts.join_window)
        run.set_deadline("join_cap", timeouts.join_cap)
    start_if_enough(run)


def on_hello(run: Run, host: str, message: Hello) -> None:
    """Let a host's members in, or tell why not."""
    uids = tuple(offer.uid for offer in message.offers)
    refused = refusal(run, message)
    if refused is not None:
        run.send_host(host, refused.message(uids))
        return
    run.roster.hosts[host].data_address = message.data_address
    for text in warnings(run, message):
        run.alert("version_differs", text)
    admitted = [
        member
        for offer in message.offers
        if (member := _let_in(run, host, message, offer)) is not None
    ]
    if admitted:
        run.send_host(host, _accept(run, admitted))
    for member in admitted:
        _welcome_back(run, member)


def _let_in(run: Run, host: str, hello: Hello, offer: Offer) -> Member | None:
    known = run.roster.members.get(offer.uid)
    if is_duplicate(known, hello, offer):
        reason = f"{offer.uid} is a member and alive: stop it, or offer another device"
        refused = Refusal(code=DUPLICATE, kind="duplicate_member", reason=reason)
        run.send_host(host, refused.message((offer.uid,)))
        return None
    if known is not None and is_back(known, offer):
        return _take_back(run, known)
    if known is not None and has_died_unseen(known, hello, offer):
        lose(run, known, UNSEEN)
    if known is not None and known.is_alive:
        fence(run, known, "replaced")
    if known is not None and known.state is MemberState.FENCING:
        refused = Refusal(
            code=DUPLICATE,
            kind="fencing",
            reason=f"{offer.uid} is being fenced: dial again",
            is_retryable=True,
        )
        run.send_host(host, refused.message((offer.uid,)))
        return None
    member = run.roster.admit(host, offer, run.now)
    run.set_deadline(f"boot:{member.uid}", run.settings.timeouts.boot)
    return member


def _take_back(run: Run, member: Member) -> Member:
    """Go on with a process that was cut off: as it was, or as a joiner if it was given up."""
    member.is_suspect = False
    if member.state is MemberState.LOST:
        member.state, member.is_new, member.cause = MemberState.READY, True, ""
        member.since = run.now
        run.alert("rank_joined", f"rank{member.number} on {member.host} is back", "info")
    return member


def _welcome_back(run: Run, member: Member) -> None:
    """Let a member that a restarted controller waits for stop and report."""
    if member.is_awaited and run.state is RunState.RECONFIGURING:
        run.broadcast(reconfigure(run), [member.uid])
    if member.state is MemberState.READY:
        start_if_enough(run)


def _accept(run: Run, members: list[Member]) -> Accept:
    settings = run.settings
    return Accept(
        members=tuple(
            Admission(uid=member.uid, incarnation=member.incarnation, number=member.number)
            for member in members
        ),
        gen=run.gen,
        run_nonce=settings.nonce,
        config=dict(settings.envelope),
        argv=settings.argv,
        code_digest=settings.code_digest,
    )


def on_ready(run: Run, member: Member, message: Ready) -> None:
    """A member has built its model: the next generation may include it."""
    if member.state is not MemberState.BOOTING or member.incarnation != message.incarnation:
        return
    run.clear_deadlines(f"boot:{member.uid}")
    member.state, member.since = MemberState.READY, run.now
    if run.started:
        run.alert("rank_joined", f"rank{member.number} on {member.host} is ready", "info")
    start_if_enough(run)


def start_if_enough(run: Run) -> None:
    """Leave the join window when its rules say so."""
    if run.state is not RunState.WAITING or run.next_state is not None:
        return
    ready = run.roster.count(MemberState.READY, MemberState.ACTIVE)
    if run.started:
        if ready >= run.settings.elastic.min_ranks:
            _form(run)
        return
    rules = run.settings.join
    if ready < rules.least:
        return
    if rules.start == "manual":
        run.go(RunState.STAGING)
        return
    booting = run.roster.count(MemberState.BOOTING)
    if not booting and _window_is_over(run, ready):
        _form(run)


def _window_is_over(run: Run, there: int) -> bool:
    target = run.settings.join.target
    return (target is not None and there >= target) or "join_window" not in run.deadlines


def _form(run: Run) -> None:
    run.clear_deadlines("join_window", "join_cap", "quorum")
    if run.gen == 0:
        run.gen = 1
    run.go(RunState.FORMING)


def on_start_requested(run: Run) -> None:
    """Someone says start: do, if enough are there."""
    ready = run.roster.in_state(MemberState.READY)
    rules = run.settings.join
    if rules.start == "auto" or len(ready) < rules.least:
        run.alert("start_refused", f"{len(ready)} ranks are ready, {rules.least} are needed")
        return
    _form(run)


def on_window_end(run: Run) -> None:
    """The join window is over: from now on the first quorum starts the run."""
    start_if_enough(run)


def on_join_cap(run: Run) -> None:
    """Nobody waits any longer."""
    there = ", ".join(member.uid for member in run.roster if member.is_alive) or "nobody"
    least = run.settings.join.least
    run.go(RunState.FAILED, f"join: {least} ranks are needed and joined: {there}")


def on_restart_overdue(run: Run) -> None:
    """Members died before the run began, and their hosts did not start them again."""
    if not cannot_start(run):
        return
    least = run.settings.join.least
    ends = [_ended(run, member) for member in run.roster if not member.is_alive]
    text = f"{least} ranks are needed, and there ended before the run began: {', '.join(ends)}"
    run.go(RunState.FAILED, f"join: {text}")


def _ended(run: Run, member: Member) -> str:
    """Return how a member has ended, with the last line that it printed."""
    tails = [str(d.get("log_tail", "")) for d in run.history.deaths if d["uid"] == member.uid]
    lines = tails[-1].strip().splitlines() if tails else []
    said = f" ({lines[-1].strip()})" if lines else ""
    return f"rank{member.number} {member.cause}{said}"


def on_boot_overdue(run: Run, uid: str) -> None:
    """A member did not build in time."""
    fence(run, run.roster.members[uid], "boot")
    start_if_enough(run)
