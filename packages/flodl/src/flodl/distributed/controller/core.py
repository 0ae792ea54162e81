"""The controller: events and a clock value in, commands out; no I/O, no clock, no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flodl.distributed.controller import ending, liveness
from flodl.distributed.controller.commands import Command, StateChanged, ToHost, ToMember
from flodl.distributed.controller.events import Event, FromHost, FromMember, HostLinkLost, Tick
from flodl.distributed.controller.meta import resume
from flodl.distributed.controller.roster import MemberState
from flodl.distributed.controller.routes import ENTER, FROM_HOST, FROM_MEMBER, LOCAL, TIMERS, Route
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.controller.saved import restore, saved
from flodl.distributed.controller.settings import RunSettings
from flodl.distributed.protocol.messages import WIRE_NAMES, Message, Nack

_log = logging.getLogger(__name__)
GONE = frozenset({MemberState.LOST, MemberState.LEFT, MemberState.FENCING})


class Controller:
    """Decides everything that a run over several ranks does.

    ``handle`` never raises on any event; what does not fit is ignored or answered with ``Nack``.

    Args:
        settings: What the run was told.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.run = Run(settings)

    @property
    def state(self) -> RunState:
        """What the run is doing."""
        return self.run.state

    def next_deadline(self) -> float | None:
        """Return when ``Tick`` is due at the latest; ``None``: nothing is waited for."""
        return min(self.run.deadlines.values(), default=None)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take an event and return what is to be done, in this order.

        Args:
            event: What happened.
            now: Monotonic seconds, never less than before.
        """
        run = self.run
        run.now = now
        if run.state is RunState.INIT and run.next_state is None:
            run.go(RunState.WAITING)
            liveness.watch(run)
        self._enter()  # also what a restarted controller begins with
        self._dispatch(event)
        self._enter()
        if run.state is RunState.SAVING:
            ending.finish_if_idle(run)
            self._enter()
        given, run.commands = run.commands, []
        return given

    def to_state(self) -> dict[str, Any]:
        """Return plain values from which ``restarted`` goes on."""
        return saved(self.run)

    @classmethod
    def resumed(cls, settings: RunSettings, meta: Mapping[str, Any]) -> Controller:
        """Return a controller that goes on where a checkpoint was written.

        Args:
            settings: What the new run was told.
            meta: What the checkpoint's meta file holds.

        Raises:
            ConfigError: The checkpoint is of a newer version, or of other data.
            AccountingError: What it says was done overlaps.
        """
        controller = cls(settings)
        controller.run = resume(settings, meta)
        return controller

    @classmethod
    def restarted(cls, settings: RunSettings, state: dict[str, Any], now: float) -> Controller:
        """Return a controller that goes on with a run whose controller died.

        It waits for the members that took part, and trains on with those that come back.
        """
        controller = cls(settings)
        controller.run = restore(settings, state, now)
        liveness.watch(controller.run)
        return controller

    def _enter(self) -> None:
        """Enter the states that were asked for, one after the other."""
        run = self.run
        while run.next_state is not None:
            run.state, run.next_state = run.next_state, None
            run.emit(StateChanged(state=run.state.value, reason=run.reason))
            ENTER[run.state](run)

    def _dispatch(self, event: Event) -> None:
        match event:
            case FromMember():
                self._from_member(event)
            case FromHost():
                self._from_host(event)
            case Tick():
                self._expire()
            case HostLinkLost():
                _log.debug("%s: link lost", event.host)
            case _:
                route = LOCAL.get(type(event))
                if route is not None and route.outcome(self.run.state) == "handled":
                    route.to(self.run, event)

    def _from_member(self, event: FromMember) -> None:
        run, member = self.run, self.run.roster.members.get(event.uid)
        route = FROM_MEMBER.get(type(event.message))
        if member is None or member.state in GONE:
            run.history.stale_messages += 1
            return
        is_current = event.gen == run.gen and event.uid in run.world
        if route is not None and route.is_of_generation and not is_current:
            run.history.stale_messages += 1
            return
        if self._fits(route, event.message, event.uid):
            assert route is not None
            route.to(run, member, event.message)

    def _from_host(self, event: FromHost) -> None:
        liveness.heard(self.run, event.host)
        route = FROM_HOST.get(type(event.message))
        if self._fits(route, event.message, None, event.host):
            assert route is not None
            route.to(self.run, event.host, event.message)

    def _fits(self, route: Route | None, message: Message, uid: str | None, host: str = "") -> bool:
        """Return whether a message is handled; one that does not fit is refused."""
        outcome = "refused" if route is None else route.outcome(self.run.state)
        if outcome == "refused":
            nack = Nack(
                kind=WIRE_NAMES[type(message)],
                seq=0,
                reason=f"not expected while {self.run.state}",
            )
            if uid is None:
                self.run.emit(ToHost(host=host, gen=self.run.gen, message=nack))
            else:
                self.run.emit(ToMember(uid=uid, gen=self.run.gen, message=nack))
        return outcome == "handled"

    def _expire(self) -> None:
        """Let every timer that is due run out, the earliest first."""
        run = self.run
        due = sorted((at, name) for name, at in run.deadlines.items() if at <= run.now)
        for at, name in due:
            if run.deadlines.get(name) != at:
                continue  # one that ran out before it has stopped or moved it
            del run.deadlines[name]
            kind, _, of = name.partition(":")
            TIMERS[kind](run, of) if of else TIMERS[kind](run)
            self._enter()
