"""The controller's loop where the ranks are threads beside it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from flodl.distributed.controller.commands import Command, ToHost, ToMember, ToMembers
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import Event, FromHost, Tick
from flodl.distributed.launch.threads.host import HOST, ThreadHost

_TURN_S = 0.02


class Director:
    """Gives the core its events, and carries out what it says.

    Args:
        core: Decides.
        host: Makes the host of the ranks; it is given what takes their events.
        publish: Takes what is for neither host nor rank.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        core: Controller,
        host: Callable[[Callable[[Event], None]], ThreadHost],
        publish: Callable[[Command], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.core = core
        self._clock = clock
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._publish = publish
        self.host = host(self._events.put)
        self._beat_at: float | None = None

    def put(self, event: Event) -> None:
        """Have the core take an event soon; any thread may call it."""
        self._events.put(event)

    def turn(self) -> None:
        """Take the next event, or the time that has passed."""
        try:
            event: Event = self._events.get(timeout=_TURN_S)
        except queue.Empty:
            event = Tick()
        now = self._clock()
        deadline = self.core.next_deadline()
        # at once, and before deadlines: a host that is this very thread cannot be missed
        commands = self._beat(now) + self.core.handle(event, now)
        if deadline is not None and now >= deadline:
            commands += self.core.handle(Tick(), now)
        for command in commands:
            self._carry_out(command)

    def _beat(self, now: float) -> list[Command]:
        """Have the core hear of the host, every heartbeat."""
        heartbeat = self.host.timeouts.heartbeat
        if self._beat_at is None:  # the host has yet to say hello
            self._beat_at = now + heartbeat
        if now < self._beat_at:
            return []
        self._beat_at = now + heartbeat
        message = self.host.progress(now)
        return self.core.handle(FromHost(host=HOST, gen=0, message=message), now)

    def _carry_out(self, command: Command) -> None:
        match command:
            case ToHost():
                self.host.take(command.message)
            case ToMember():
                self.host.give(command.uid, command.gen, command.message)
            case ToMembers():
                for uid in command.uids:
                    self.host.give(uid, command.gen, command.message)
            case _:
                self._publish(command)
