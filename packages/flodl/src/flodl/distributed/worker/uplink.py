"""One websocket to the controller, and what survives it when it breaks.

The host daemon has one for all its ranks; a rank that another launcher started has its own.
Messages are numbered and kept until the controller has them, so a broken connection loses none.
When to dial again is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from flodl.core.errors import JoinRejected
from flodl.distributed.cluster.door import CONTROL_PATH, HOST_HEADER, INSTANCE_HEADER
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.protocol import (
    MAX_FRAME_BYTES,
    Frame,
    FrameError,
    Inbox,
    Message,
    Outbox,
    ResendGapError,
    UnknownFrame,
    decode,
    encode,
)
from flodl.distributed.protocol.messages import (
    Beat,
    Fenced,
    Nack,
    RankError,
    RankExit,
    TelemetryRecord,
)

_logger = logging.getLogger(__name__)
QUIET = logging.Logger("flodl.websocket", level=logging.WARNING)  # noqa: LOG001 (see below)
"""For the websocket library, which at debug level logs headers, and with them the token.

It stands outside the tree of loggers, so that no setting of the program reaches it.
"""
_CONFIRM_EVERY = 500
_WRONG_TOKEN = ("bad_token", "the token is wrong", False)
_REFUSALS = {
    401: _WRONG_TOKEN,
    403: _WRONG_TOKEN,
    429: ("too_many_failures", "too many wrong tokens came from this address", True),
}
_LASTING = (RankExit, RankError, Fenced)
"""Messages that a controller which was started again must still hear."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where the controller is, and what opens its door."""

    address: str
    """``host:port``."""
    token: str
    tls: ssl.SSLContext | None = None

    def url(self, path: str) -> str:
        """Return the address of a websocket."""
        return f"{'ws' if self.tls is None else 'wss'}://{self.address}{path}"


class Uplink:
    """Messages to and from the controller; all methods belong to one event loop.

    Args:
        endpoint: Where to dial.
        host: Name that this side goes by.
        receive: Called with each new frame, in order, except beats.
        confirm: Called with the monotonic time at which a beat was sent that the controller got.
        timeouts: Deadlines.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        host: str,
        *,
        receive: Callable[[Frame], None],
        confirm: Callable[[float], None],
        timeouts: Timeouts,
    ) -> None:
        self._endpoint = endpoint
        self._host = host
        self._receive = receive
        self._confirm = confirm
        self._timeouts = timeouts
        self._instance = secrets.token_hex(8)
        self._peer_instance = ""
        self._socket: ClientConnection | None = None
        self._outbox, self._inbox = Outbox(), Inbox()
        self._wake = asyncio.Event()
        self._sent_seq = 0
        self._nonce = ""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._socket is not None

    def send(self, message: Message, gen: int, member: str = "") -> None:
        """Number a message and send it as soon as there is a connection.

        Telemetry that cannot go at once is dropped: it would be old, and fill the ring.
        """
        if isinstance(message, TelemetryRecord) and self._socket is None:
            return
        frame = Frame(
            run=self._nonce,
            gen=gen,
            seq=self._outbox.next_seq(),
            member=member,
            message=message,
        )
        self._outbox.keep(encode(frame))
        self._wake.set()

    async def connect(self, on_open: Callable[[], None]) -> str:
        """Dial, carry messages until the connection breaks, and return why it did.

        Args:
            on_open: Called once messages can be sent; the first of them introduces this side.

        Raises:
            JoinRejected: The controller does not let this side in.
        """
        try:
            await self._carry(on_open)
        except InvalidStatus as error:
            status = error.response.status_code
            if status in _REFUSALS:
                code, reason, retryable = _REFUSALS[status]
                raise JoinRejected(
                    code,
                    f"{self._endpoint.address} answers {status}: {reason}",
                    retryable=retryable,
                ) from error
            return f"it answers {status}"
        except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError, FrameError) as error:
            return str(error) or type(error).__name__
        except ResendGapError as error:
            # what the controller never got is gone: it must take this side for a new one
            self._instance, self._peer_instance = secrets.token_hex(8), ""
            self._outbox, self._inbox = Outbox(), Inbox()
            return str(error)
        return "closed"

    async def close(self) -> None:
        """Close the connection; :meth:`connect` then returns."""
        if self._socket is not None:
            await self._socket.close()

    async def _carry(self, on_open: Callable[[], None]) -> None:
        headers = {
            "Authorization": f"Bearer {self._endpoint.token}",
            INSTANCE_HEADER: self._instance,
            HOST_HEADER: self._host,
        }
        async with connect(
            self._endpoint.url(CONTROL_PATH),
            ssl=self._endpoint.tls,
            additional_headers=headers,
            max_size=MAX_FRAME_BYTES,
            logger=QUIET,
            compression=None,
            proxy=None,
            open_timeout=self._timeouts.join_handshake + self._timeouts.boot,
            ping_interval=self._timeouts.ping,
            ping_timeout=self._timeouts.suspect,
            close_timeout=1.0,
        ) as socket:
            response = socket.response
            told = "" if response is None else response.headers.get(INSTANCE_HEADER, "")
            kept = self._meet(told)
            self._socket = socket
            on_open()
            for frame in kept:
                self.send(frame.message, frame.gen, frame.member)
            tasks = [
                asyncio.create_task(step)
                for step in (self._read(socket), self._write(socket), self._pulse(socket))
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                self._socket = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _meet(self, instance: str) -> list[Frame]:
        """Start numbering afresh where another process answers; return what it must still hear."""
        self._sent_seq = self._outbox.acked_seq
        if instance == self._peer_instance:
            return []
        is_first, self._peer_instance = not self._peer_instance, instance
        if is_first:
            return []
        frames = [decode(sent.data) for sent in self._outbox.unacknowledged(0)]
        self._outbox, self._inbox, self._sent_seq = Outbox(), Inbox(), 0
        return [f for f in frames if isinstance(f, Frame) and isinstance(f.message, _LASTING)]

    async def _read(self, socket: ClientConnection) -> None:
        async for data in socket:
            if isinstance(data, str):
                raise FrameError("a text frame: this side takes binary ones")
            frame = decode(data)
            if not self._inbox.is_new(frame.seq):
                continue
            if isinstance(frame, UnknownFrame):
                _logger.warning("the controller sent %r, which is unknown here", frame.kind)
                nack = Nack(kind=frame.kind, seq=frame.seq, reason="unknown type")
                self.send(nack, frame.gen, frame.member)
            elif isinstance(frame.message, Beat):
                # the controller returns the time of our newest beat that reached it
                self._outbox.acknowledge(frame.message.acked_seq)
                self._confirm(frame.message.monotonic_ms / 1000)
            else:
                self._nonce = frame.run
                self._receive(frame)

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            self._wake.clear()
            for data in self._unsent():
                await socket.send(data)
            await self._wake.wait()

    def _unsent(self) -> list[bytes]:
        fresh = [s for s in self._outbox.unacknowledged(0) if s.seq > self._sent_seq]
        if fresh:
            self._sent_seq = fresh[-1].seq
        return [sent.data for sent in fresh]

    async def _pulse(self, socket: ClientConnection) -> None:
        while True:
            acked, since = self._inbox.acked_seq, time.monotonic()
            await socket.send(self._beat())
            # many messages are confirmed early, or the other side's ring would run over
            while self._inbox.acked_seq - acked < _CONFIRM_EVERY:
                left = since + self._timeouts.heartbeat - time.monotonic()
                if left <= 0:
                    break
                await asyncio.sleep(min(left, 0.1))

    def _beat(self) -> bytes:
        beat = Beat(monotonic_ms=time.monotonic() * 1000, acked_seq=self._inbox.acked_seq)
        return encode(Frame(run=self._nonce, gen=0, seq=0, member="", message=beat))
