"""Counts what passes the controller, and what that costs it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from flodl.distributed.controller.commands import Command
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import Event
from flodl.distributed.protocol.codec import Frame, encode
from flodl.distributed.protocol.messages import Message, World
from flodl.testing.des.results import ControllerCost


@dataclass(kw_only=True, slots=True)
class Meter:
    """Calls a controller, and keeps the books."""

    controller: Controller
    received: int = 0
    sent: int = 0
    bytes: float = 0.0
    nanoseconds: list[int] = field(default_factory=list)
    sizes: dict[tuple[type[Message], int], int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Let the controller handle an event, and measure how long it takes."""
        start = time.thread_time_ns()
        commands = self.controller.handle(event, now)
        self.nanoseconds.append(time.thread_time_ns() - start)
        return commands

    def count_in(self, message: Message) -> None:
        """Count a message to the controller."""
        self.received += 1
        self.kinds[type(message).__name__] += 1
        self.bytes += self._size(message)

    def count_out(self, message: Message, copies: int) -> None:
        """Count a message from the controller, sent over so many sockets."""
        self.sent += copies
        self.kinds[type(message).__name__] += copies
        self.bytes += copies * self._size(message)

    def _size(self, message: Message) -> int:
        """Return the bytes of a message: those of the first of its kind.

        The one that names all members is taken apart by how many there are.
        """
        members = len(message.members) if isinstance(message, World) else 0
        key = (type(message), members)
        if key not in self.sizes:
            self.sizes[key] = self._encoded(message)
        return self.sizes[key]

    def _encoded(self, message: Message) -> int:
        frame = Frame(run="simulation", gen=1, seq=1000, member="host12/device3/0", message=message)
        return len(encode(frame))

    def cost(self, windows: int) -> ControllerCost:
        """Return the processor time that the controller took."""
        ordered = sorted(self.nanoseconds)
        seconds = sum(ordered) / 1e9
        return ControllerCost(
            seconds=seconds,
            mean_us=seconds * 1e6 / max(1, len(ordered)),
            p99_us=ordered[int(0.99 * (len(ordered) - 1))] / 1e3 if ordered else 0.0,
            per_window_ms=seconds * 1e3 / max(1, windows),
        )
