"""The connection of a rank that is a thread: its mailbox, and the controller's queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from flodl.distributed.collective.store import MemoryStore, StoreClient
from flodl.distributed.lifecycle.rank_events import FromController, RankEvent
from flodl.distributed.protocol.messages import (
    AtBarrier,
    Message,
    Reduced,
    ReduceGo,
    RunCallback,
    World,
)
from flodl.distributed.worker.link import Mailbox


class Killed(BaseException):
    """Ends the thread of a rank as a signal ends a process: nothing of its own runs any more."""


class Gate(Protocol):
    """Lets a rank pass, or ends it."""

    @property
    def is_killed(self) -> bool:
        """Whether the rank is to end at the next point that it comes to."""
        ...

    @property
    def is_frozen(self) -> bool:
        """Whether the rank is held, as a process is that was stopped."""
        ...

    def reach(self, point: str) -> object:
        """Note that the rank has come to a point, such as ``"reduce:3"``.

        Raises:
            Killed: It ends here.
        """
        ...

    def kill(self) -> None:
        """Have the rank end at the next point that it comes to."""
        ...


class OpenGate:
    """A gate at which nothing happens until the rank is to end."""

    is_frozen = False

    def __init__(self) -> None:
        self.is_killed = False

    def reach(self, point: str) -> None:
        """End the rank here if it is to end."""
        if self.is_killed:
            raise Killed(point)

    def kill(self) -> None:
        """Have the rank end at the next point that it comes to."""
        self.is_killed = True


def point_of(message: Message) -> str | None:
    """Return the point that a rank comes to with a message, such as ``"reduce:3"``."""
    match message:
        case AtBarrier():
            return f"barrier:{message.window}"
        case ReduceGo():
            return f"reduce:{message.window}"
        case Reduced():
            return f"after_reduce:{message.window}"
        case World():
            return f"form:{message.gen}"
        case RunCallback():
            return f"{message.kind}:{message.epoch}"
    return None


class ThreadLink:
    """What ``RankLink`` is to a process, for a thread.

    Args:
        gate: What the rank passes at each point.
        store: Where groups find each other.
        deliver: Takes what the rank sends, with its generation.
    """

    def __init__(
        self, gate: Gate, store: MemoryStore, deliver: Callable[[Message, int], None]
    ) -> None:
        self.gate = gate
        self.mailbox = Mailbox()
        self._store = store
        self._deliver = deliver
        self.phase, self.step, self.window_steps, self.batch_ms = "", 0, 0, 0.0

    @property
    def store(self) -> StoreClient:
        """Where groups find each other."""
        return self._store

    def take(self) -> Sequence[RankEvent]:
        """Return what has arrived, without waiting."""
        self._check()
        mail = self.mailbox.take()
        for each in mail:
            point = point_of(each.message) if isinstance(each, FromController) else None
            if point is not None:
                self.gate.reach(point)
        return mail

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has arrived; return whether it has."""
        self._check()
        return self.mailbox.wait(timeout_s)

    def is_interrupted(self) -> bool:
        """Return whether to give up what is waited for, and take the mail instead."""
        self._check()
        return self.mailbox.has_urgent

    def send(self, message: Message, gen: int = 0) -> None:
        """Send a message under a generation."""
        self._check()
        point = point_of(message)
        if point is not None and isinstance(message, AtBarrier):
            self.gate.reach(point)
        self._deliver(message, gen)
        if point is not None and isinstance(message, Reduced):
            self.gate.reach(point)

    def progress(
        self,
        phase: str,
        *,
        step: int,
        window_steps: int = 0,
        batch_ms: float = 0.0,
    ) -> None:
        """Take note of how far the rank is."""
        self.phase, self.step = phase, step
        self.window_steps, self.batch_ms = window_steps, batch_ms

    def _check(self) -> None:
        if self.gate.is_killed:
            raise Killed
