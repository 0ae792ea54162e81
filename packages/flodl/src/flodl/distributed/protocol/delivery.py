"""At-least-once delivery: numbered messages, a ring to send again from, duplicates dropped."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from flodl.core.errors import FlodlError

RING_SIZE = 10_000


class ResendGapError(FlodlError):
    """A peer was away for so long that messages it never got are no longer kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One message as it was sent."""

    seq: int
    data: bytes


class Outbox:
    """Numbers what is sent and keeps it until the peer has it.

    Args:
        size: Messages kept for sending again.
    """

    def __init__(self, size: int = RING_SIZE) -> None:
        self._ring: deque[Sent] = deque(maxlen=size)
        self._last = 0
        self._acked = 0

    @property
    def last_seq(self) -> int:
        """Number of the last message, 0 before the first."""
        return self._last

    @property
    def acked_seq(self) -> int:
        """Number up to which the peer has everything."""
        return self._acked

    def next_seq(self) -> int:
        """Return the number for the next message, which ``keep`` then takes."""
        return self._last + 1

    def keep(self, data: bytes) -> Sent:
        """Take a message with the next number, and return it for sending."""
        self._last += 1
        sent = Sent(seq=self._last, data=data)
        self._ring.append(sent)
        return sent

    def acknowledge(self, seq: int) -> None:
        """Forget what the peer has; a number that was never sent, or an older one, does nothing."""
        if not self._acked < seq <= self._last:
            return
        self._acked = seq
        while self._ring and self._ring[0].seq <= seq:
            self._ring.popleft()

    def unacknowledged(self, acked_seq: int) -> list[Sent]:
        """Return what must be sent again to a peer that has everything up to a number.

        Raises:
            ResendGapError: Some of it is no longer kept: the peer must start afresh.
        """
        self.acknowledge(acked_seq)
        missing = self._last - self._acked
        if missing > len(self._ring):
            raise ResendGapError(
                f"peer has messages up to {self._acked}, and only the last {len(self._ring)} of "
                f"{self._last} are kept"
            )
        return list(self._ring)


class Inbox:
    """Tells new messages from those that arrived before."""

    def __init__(self) -> None:
        self._acked = 0
        self._early: set[int] = set()

    @property
    def acked_seq(self) -> int:
        """Number up to which everything has arrived."""
        return self._acked

    def is_new(self, seq: int) -> bool:
        """Return whether a message has not arrived before, and count it as arrived.

        Number 0 is not counted and always new.
        """
        if seq == 0:
            return True
        if seq <= self._acked or seq in self._early:
            return False
        self._early.add(seq)
        while self._acked + 1 in self._early:
            self._acked += 1
            self._early.remove(self._acked)
        return True

    def restart(self, seq: int = 0) -> None:
        """Expect a peer that numbers from ``seq + 1``, as one that was started again does."""
        self._acked = seq
        self._early.clear()


class GenerationGate:
    """Drops messages of generations that are over, and counts them."""

    def __init__(self, gen: int = 0) -> None:
        self.gen = gen
        self.dropped = 0

    def admits(self, gen: int) -> bool:
        """Return whether a message of a generation still counts."""
        if gen < self.gen:
            self.dropped += 1
            return False
        return True
