"""All hosts' sessions: who is connected, and the way of each message to its host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flodl.distributed.protocol import Frame, Message
from flodl.distributed.protocol.messages import Hello, StoreRequest
from flodl.distributed.serving.sessions import HostSession


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with its way: to a rank, or to a host's daemon where no rank is named."""

    message: Message
    gen: int
    host: str = ""
    member: str = ""


class Switchboard:
    """Keeps one session a host; its methods belong to the server's loop unless they say otherwise.

    Args:
        nonce: Nonce of the run.
        on_frame: Called with host and frame of each new message.
        on_store: Called with host and frame of each operation of the store.
        on_lost: Called with the name of a host whose connection is gone.
    """

    def __init__(
        self,
        nonce: str,
        *,
        on_frame: Callable[[str, Frame], None],
        on_store: Callable[[str, Frame], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._nonce = nonce
        self._on_frame, self._on_store, self._on_lost = on_frame, on_store, on_lost
        self._sessions: dict[str, HostSession] = {}
        self._home: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.undeliverable = 0
        """Messages to hosts that were never here."""

    def session(self, host: str, instance: str) -> HostSession:
        """Return the session of a daemon, a new one where another process dials than before."""
        self._loop = asyncio.get_running_loop()
        known = self._sessions.get(host)
        if known is not None and known.instance == instance:
            return known
        if known is not None:
            known.close(known.connection)
        session = HostSession(host, instance, self._nonce, self._take)
        self._sessions[host] = session
        return session

    def hang_up(self, session: HostSession, connection: str) -> None:
        """Take note that a connection has ended."""
        if session.close(connection) and self._sessions.get(session.host) is session:
            self._on_lost(session.host)

    def post(self, batch: Sequence[Outgoing]) -> None:
        """Send messages, in order; any thread may call it."""
        loop = self._loop
        if batch and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._post, batch)

    def deliver(self, item: Outgoing) -> None:
        """Send one message, from within the loop."""
        self._post((item,))

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts that are connected now."""
        return [host for host, known in tuple(self._sessions.items()) if known.connection]

    def _post(self, batch: Sequence[Outgoing]) -> None:
        for item in batch:
            host = item.host or self._home.get(item.member, "")
            session = self._sessions.get(host)
            if session is None:
                self.undeliverable += 1
            else:
                session.send(item.message, item.gen, item.member)

    def _take(self, host: str, frame: Frame) -> None:
        if frame.member:
            self._home[frame.member] = host
        elif isinstance(frame.message, Hello):
            self._home.update({offer.uid: host for offer in frame.message.offers})
        if isinstance(frame.message, StoreRequest):
            self._on_store(host, frame)
        else:
            self._on_frame(host, frame)
