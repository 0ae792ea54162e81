"""One host's side of the control port: numbering, what is still to be sent, and its websocket."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from flodl.distributed.protocol import Frame, Inbox, Message, Outbox, UnknownFrame, decode, encode
from flodl.distributed.protocol.messages import Beat, Nack

Deliver = Callable[[str, Frame], None]
_CONFIRM_EVERY = 500


class HostSession:
    """Messages from and to one daemon, across its connections; lives in one event loop.

    Args:
        host: Name of the host.
        instance: The daemon's process.
        nonce: Nonce of the run.
        deliver: Called with each new frame.
    """

    def __init__(self, host: str, instance: str, nonce: str, deliver: Deliver) -> None:
        self.host, self.instance = host, instance
        self._nonce = nonce
        self._deliver = deliver
        self._outbox, self._inbox = Outbox(), Inbox()
        self._wake = asyncio.Event()
        self._sent_seq = 0
        self._confirmed_seq = 0
        self._beat_ms = 0.0
        self._owes_beat = False
        self.connection = ""
        """Names the websocket that serves the session now; empty while there is none."""

    def send(self, message: Message, gen: int, member: str = "") -> None:
        """Number a message and send it as soon as there is a connection."""
        frame = Frame(
            run=self._nonce,
            gen=gen,
            seq=self._outbox.next_seq(),
            member=member,
            message=message,
        )
        self._outbox.keep(encode(frame))
        self._wake.set()

    def open(self) -> str:
        """Give the session to a new connection, and return that one's name."""
        self.connection = secrets.token_hex(4)
        self._sent_seq = self._outbox.acked_seq
        self._wake.set()
        return self.connection

    def receive(self, data: bytes) -> None:
        """Take in one message of the websocket.

        Raises:
            FrameError: It is no frame.
        """
        frame = decode(data)
        if not self._inbox.is_new(frame.seq):
            return
        if isinstance(frame, UnknownFrame):
            nack = Nack(kind=frame.kind, seq=frame.seq, reason="unknown type")
            self.send(nack, frame.gen, frame.member)
            return
        if isinstance(frame.message, Beat):
            self._beat_ms = frame.message.monotonic_ms
            self._outbox.acknowledge(frame.message.acked_seq)
            self._owe_beat()
        elif self._inbox.acked_seq - self._confirmed_seq >= _CONFIRM_EVERY:
            self._owe_beat()
        self._deliver(self.host, frame)

    async def write(self, connection: str, put: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what there is to send, until another connection takes over.

        Args:
            connection: Name of the connection.
            put: Sends one message through it.

        Raises:
            ResendGapError: The daemon was away for too long.
        """
        while self.connection == connection:
            self._wake.clear()
            if self._owes_beat:
                self._owes_beat = False
                await put(self._beat())
            for sent in self._outbox.unacknowledged(0):
                if sent.seq > self._sent_seq:
                    self._sent_seq = sent.seq
                    await put(sent.data)
            if not self._owes_beat and self._sent_seq == self._outbox.last_seq:
                await self._wake.wait()

    def close(self, connection: str) -> bool:
        """End a connection; return whether it was the one that served the session."""
        if self.connection != connection:
            return False
        self.connection = ""
        self._wake.set()
        return True

    def _owe_beat(self) -> None:
        self._owes_beat = True
        self._wake.set()

    def _beat(self) -> bytes:
        self._confirmed_seq = self._inbox.acked_seq
        # the daemon's own time comes back, so that it knows which of its beats arrived
        beat = Beat(monotonic_ms=self._beat_ms, acked_seq=self._inbox.acked_seq)
        return encode(Frame(run=self._nonce, gen=0, seq=0, member="", message=beat))
