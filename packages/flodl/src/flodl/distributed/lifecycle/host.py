"""What one host's daemon does next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from flodl.distributed.lifecycle.host_events import (
    BeatAcked,
    Connect,
    ExitHost,
    FromController,
    HoldRanks,
    HostCommand,
    HostEvent,
    Kill,
    LinkDown,
    LinkUp,
    PagesRead,
    RankEnded,
    RankStarted,
    Spawn,
    TellLink,
    Tick,
)
from flodl.distributed.lifecycle.host_state import (
    HostRun,
    HostSettings,
    HostState,
    LocalRank,
    ProcessState,
)
from flodl.distributed.protocol.codec import PROTOCOL
from flodl.distributed.protocol.messages import (
    WIRE_NAMES,
    Abort,
    Accept,
    Beat,
    Bye,
    Fence,
    Fenced,
    Hello,
    Message,
    Nack,
    Progress,
    RankExit,
    Reject,
    Stop,
    World,
)
from flodl.distributed.protocol.values import Offer

Outcome = Literal["handled", "ignored", "refused"]
States = frozenset[HostState]
FIRST_BACKOFF = 0.2
PROGRESS_INTERVAL = 0.5
DONE, AGAIN, NEVER = 0, 1, 2
"""Exit codes: done, may be tried again, will never work."""


def _dial(run: HostRun) -> None:
    """Open the link after a pause that doubles with each vain attempt."""
    pause = 0.0 if run.attempts == 0 else FIRST_BACKOFF * 2 ** min(run.attempts - 1, 10)
    run.is_dialing = True
    run.emit(Connect(after=min(pause, run.settings.timeouts.reconnect_cap)))


def on_link_up(run: HostRun, event: LinkUp) -> None:  # noqa: ARG001
    """Say hello with everything that this host has to offer."""
    run.is_dialing, run.is_linked, run.attempts = False, True, 0
    _hello(run, run.offers())


def _hello(run: HostRun, offers: tuple[Offer, ...]) -> None:
    settings = run.settings
    run.send(
        Hello(
            host=settings.host,
            offers=offers,
            versions=settings.versions,
            proto=PROTOCOL,
            vendor=settings.vendor,
            run_nonce=run.nonce,
            model_sig=settings.model_sig,
            dataset_sig=settings.dataset_sig,
            data_address=settings.data_address,
        )
    )


def on_link_down(run: HostRun, event: LinkDown) -> None:  # noqa: ARG001
    """Let ranks know, and dial again."""
    run.is_linked = False
    if not run.is_told_down:
        run.is_told_down = True
        run.emit(TellLink(is_up=False))
    if run.state is HostState.REAPING:
        return
    run.attempts += 1
    _dial(run)


def on_beat_acked(run: HostRun, event: BeatAcked) -> None:
    """Renew the lease under which this host's ranks may work."""
    run.acked_at = max(run.acked_at or 0.0, event.sent_at)


def on_accept(run: HostRun, message: Accept) -> None:
    """Start the ranks that were let in and are not there."""
    run.nonce, run.acked_at = message.run_nonce, run.now
    run.is_holding = False
    if run.is_told_down:
        run.is_told_down = False
        run.emit(TellLink(is_up=True))
    for admission in message.members:
        rank = run.ranks.get(admission.uid)
        if rank is None or rank.is_there:
            continue
        rank.process, rank.is_offered = ProcessState.STARTING, False
        rank.incarnation = admission.incarnation
        run.emit(
            Spawn(
                uid=rank.uid,
                number=admission.number,
                incarnation=rank.incarnation,
                accept=message,
            )
        )
    run.state = HostState.ADMITTED
    _settle(run)


def _settle(run: HostRun) -> None:
    """Follow what the processes do: starting, running, or all ended."""
    processes = {rank.process for rank in run.ranks.values()}
    if run.state is HostState.REAPING:
        if processes <= {ProcessState.ABSENT}:
            _over(run)
    elif ProcessState.STARTING in processes:
        run.state = HostState.SPAWNING
    elif run.state in (HostState.ADMITTED, HostState.SPAWNING):
        run.state = HostState.SUPERVISING


def _over(run: HostRun) -> None:
    if run.settings.is_persistent and run.exit_code != NEVER:
        run.state, run.reap_at, run.nonce, run.gen = HostState.CONNECTING, None, "", 0
        for rank in run.ranks.values():
            rank.incarnation += 1
            rank.is_offered, rank.is_fenced = True, False
        run.attempts += 1
        _dial(run)
    else:
        run.state = HostState.EXIT
        run.emit(ExitHost(code=run.exit_code))


def on_reject(run: HostRun, message: Reject) -> None:
    """Leave out what is not let in; with nothing left, end."""
    for uid in message.uids:
        rank = run.ranks.get(uid)
        if rank is not None:
            rank.is_offered = False
    if any(rank.is_there or rank.is_offered for rank in run.ranks.values()):
        return
    is_final = not message.is_retryable and message.kind != "duplicate_member"
    run.exit_code = NEVER if is_final else AGAIN
    _reap(run)


def on_world(run: HostRun, message: World) -> None:
    """Note the generation."""
    run.gen, run.version = message.gen, message.version


def on_fence(run: HostRun, message: Fence) -> None:
    """Kill a rank, and confirm when it is gone."""
    rank = run.ranks.get(message.uid)
    if rank is None or rank.incarnation != message.incarnation or not rank.is_there:
        run.send(Fenced(uid=message.uid, incarnation=message.incarnation))
        return
    rank.is_fenced = True
    run.emit(Kill(uid=rank.uid, incarnation=rank.incarnation))


def on_rank_started(run: HostRun, event: RankStarted) -> None:
    """A process runs."""
    rank = run.ranks.get(event.uid)
    if rank is not None and rank.incarnation == event.incarnation and rank.is_there:
        rank.process = ProcessState.RUNNING
        _settle(run)


def on_rank_ended(run: HostRun, event: RankEnded) -> None:
    """A process is gone: tell it, and start it again if that may help."""
    rank = run.ranks.get(event.uid)
    if rank is None or rank.incarnation != event.incarnation or not rank.is_there:
        return
    rank.process = ProcessState.ABSENT
    run.send(
        RankExit(
            uid=event.uid,
            incarnation=event.incarnation,
            code=event.code,
            signal=event.signal,
            is_oom_killed=event.is_oom_killed,
            last_step=event.last_step,
            log_tail=event.log_tail,
        )
    )
    if rank.is_fenced:
        rank.is_fenced = False
        run.send(Fenced(uid=event.uid, incarnation=event.incarnation))
    is_death = not (event.said_bye and event.code == 0) and not event.is_user_error
    if is_death and run.state is not HostState.REAPING:
        _start_again(run, rank)
    _settle(run)


def _start_again(run: HostRun, rank: LocalRank) -> None:
    if not rank.may_start_again(run.settings.respawn, run.now):
        return
    rank.starts.append(run.now)
    rank.incarnation += 1
    rank.is_offered = True
    if run.is_linked:
        _hello(run, tuple(offer for offer in run.offers() if offer.uid == rank.uid))


def on_pages_read(run: HostRun, event: PagesRead) -> None:
    """Pass progress on, at most twice a second."""
    if not run.is_linked or not event.ranks:
        return
    if run.progress_at is None or run.now - run.progress_at >= PROGRESS_INTERVAL:
        run.progress_at = run.now
        run.send(Progress(ranks=event.ranks))


def on_tick(run: HostRun, event: Tick) -> None:  # noqa: ARG001
    """Dial for the first time, beat, and watch the host's own lease."""
    if run.state is HostState.CONNECTING and not run.is_linked and not run.is_dialing:
        _dial(run)
    timeouts = run.settings.timeouts
    is_beat_due = run.beat_at is None or run.now - run.beat_at >= timeouts.heartbeat
    if run.is_linked and is_beat_due:
        run.beat_at = run.now
        run.send(Beat(monotonic_ms=run.now * 1000, acked_seq=0))
    if run.reap_at is not None and run.now >= run.reap_at:
        _kill_all(run)
    elif run.acked_at is not None and run.state is not HostState.REAPING:
        _watch_lease(run, run.now - run.acked_at)


def _watch_lease(run: HostRun, silence: float) -> None:
    """Hold the ranks before the controller gives their work away; in the end, give up."""
    timeouts = run.settings.timeouts
    if silence >= timeouts.host_lease + run.settings.controller_grace:
        run.exit_code = AGAIN
        _reap(run)
    elif silence >= timeouts.host_lease and not run.is_holding:
        run.is_holding = True
        run.emit(HoldRanks())


def _reap(run: HostRun) -> None:
    """Wait for the ranks to end, and kill those that do not."""
    run.state = HostState.REAPING
    run.reap_at = run.now + run.settings.timeouts.terminate
    _settle(run)


def _kill_all(run: HostRun) -> None:
    for rank in run.ranks.values():
        if rank.is_there:
            run.emit(Kill(uid=rank.uid, incarnation=rank.incarnation))


def on_bye(run: HostRun, message: Bye) -> None:  # noqa: ARG001
    """The run is over."""
    run.exit_code = DONE
    _reap(run)


def on_abort(run: HostRun, message: Abort) -> None:  # noqa: ARG001
    """The run ends at once."""
    run.exit_code = AGAIN
    _kill_all(run)
    _reap(run)


def _ignore(run: HostRun, event: object) -> None:
    """Take what says nothing to a host."""


Step = Callable[[HostRun, Any], None]
ANY: States = frozenset(HostState)
LIVE: States = ANY - {HostState.EXIT}
WORKING: States = LIVE - {HostState.REAPING}

MESSAGES: dict[type[Message], tuple[States, Step]] = {
    Accept: (WORKING, on_accept),
    Reject: (WORKING, on_reject),
    World: (WORKING, on_world),
    Fence: (LIVE, on_fence),
    Bye: (WORKING, on_bye),
    Abort: (LIVE, on_abort),
    Stop: (LIVE, _ignore),
    Beat: (LIVE, _ignore),
    Nack: (LIVE, _ignore),
}

LOCAL: dict[type[Any], tuple[States, Step]] = {
    LinkUp: (WORKING, on_link_up),
    LinkDown: (LIVE, on_link_down),
    BeatAcked: (LIVE, on_beat_acked),
    RankStarted: (LIVE, on_rank_started),
    RankEnded: (LIVE, on_rank_ended),
    PagesRead: (LIVE, on_pages_read),
    Tick: (LIVE, on_tick),
}


def _wire_name(kind: type[Any]) -> str:
    return WIRE_NAMES[kind]


def _step(kind: type[Any]) -> Step:
    return (MESSAGES if kind in WIRE_NAMES else LOCAL)[kind][1]


def outcome(state: HostState, kind: type[Any]) -> Outcome:
    """Return what becomes of a kind of event in a state."""
    is_message = kind in WIRE_NAMES
    states = (MESSAGES if is_message else LOCAL).get(kind, (frozenset(), _ignore))[0]
    if state in states:
        return "handled"
    return "refused" if is_message and state in WORKING else "ignored"


class HostMachine:
    """Takes events of one host and says what is to be done.

    ``handle`` never raises on any event. ``Tick`` is due at least once per heartbeat.

    Args:
        settings: What the daemon was told.
    """

    def __init__(self, settings: HostSettings) -> None:
        self.run = HostRun.fresh(settings)

    @property
    def state(self) -> HostState:
        """How far the host has come."""
        return self.run.state

    def next_deadline(self) -> float:
        """Return when ``Tick`` is due at the latest."""
        return self.run.now + self.run.settings.timeouts.heartbeat

    def handle(self, event: HostEvent, now: float) -> list[HostCommand]:
        """Take an event and return what is to be done, in this order.

        Args:
            event: What happened.
            now: Monotonic seconds, never less than before.
        """
        run = self.run
        run.now = now
        subject = event.message if isinstance(event, FromController) else event
        match outcome(run.state, type(subject)):
            case "handled":
                _step(type(subject))(run, subject)
            case "refused":
                run.send(
                    Nack(
                        kind=_wire_name(type(subject)),
                        seq=0,
                        reason=f"not expected while {run.state}",
                    )
                )
        given, run.commands = run.commands, []
        return given

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return self.run.to_state()

    @classmethod
    def from_state(cls, settings: HostSettings, state: dict[str, Any]) -> HostMachine:
        """Return the machine that ``to_state`` described."""
        machine = cls(settings)
        machine.run = HostRun.from_state(settings, state)
        return machine
