"""The controller's loop where the ranks are threads beside it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from flodl.distributed.controller.commands import Command, ToHost, ToMember, ToMembers
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import Event, Tick
from flodl.distributed.launch.threads.host import ThreadHost

_TURN_S = 0.02


class Director:
    """Gives the core its events, and carries out what it says.

    Args:
        core: Decides.
        host: Makes the host of the ranks; it is given what takes their events.
        publish: Takes what is for neither host nor rank.
    """

    def __init__(
        self,
        core: Controller,
        host: Callable[[Callable[[Event], None]], ThreadHost],
        publish: Callable[[Command], None],
    ) -> None:
        self.core = core
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._publish = publish
        self.host = host(self._events.put)

    def put(self, event: Event) -> None:
        """Have the core take an event soon; any thread may call it."""
        self._events.put(event)

    def turn(self) -> None:
        """Take the next event, or the time that has passed."""
        try:
            event: Event = self._events.get(timeout=_TURN_S)
        except queue.Empty:
            event = Tick()
        now = time.monotonic()
        deadline = self.core.next_deadline()
        commands = self.core.handle(event, now)
        if deadline is not None and now >= deadline:
            commands += self.core.handle(Tick(), now)
        for command in commands:
            self._carry_out(command)

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
