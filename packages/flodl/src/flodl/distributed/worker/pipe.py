"""The pipe between a rank and its host daemon: frames of the protocol, and a few notes.

Each packet is a length and a kind, then a frame where the kind is ``FRAME``. Both ends live on one
machine and one of them started the other, so nothing is numbered or sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from enum import Enum

from flodl.distributed.protocol import MAX_FRAME_BYTES, FrameError

_HEADER = struct.Struct("!IB")


class PacketKind(Enum):
    """What a packet of the pipe is."""

    FRAME = 1
    LINK_UP = 2
    """The controller can be reached."""
    LINK_DOWN = 3
    HOLD = 4
    """The host's lease has expired: no step, no callback, no file is written from now on."""


def packet(kind: PacketKind, data: bytes = b"") -> bytes:
    """Return the bytes of a packet."""
    return _HEADER.pack(len(data), kind.value) + data


class RankPipe:
    """The rank's end; one thread may send while another receives.

    Args:
        fd: Connected socket; the pipe owns it from now on.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._socket.set_inheritable(False)

    def send(self, data: bytes) -> bool:
        """Send a frame; false when the daemon is gone."""
        try:
            self._socket.sendall(packet(PacketKind.FRAME, data))
        except OSError:
            return False
        return True

    def receive(self) -> tuple[PacketKind, bytes] | None:
        """Wait for a packet; ``None`` when the daemon is gone or the pipe was shut."""
        header = self._exactly(_HEADER.size)
        if header is None:
            return None
        size, kind = _HEADER.unpack(header)
        data = self._exactly(size)
        return None if data is None else (PacketKind(kind), data)

    def shut(self) -> None:
        """Let a waiting :meth:`receive` return; what was sent still arrives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the pipe."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except OSError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)


class DaemonPipe:
    """The daemon's end, in its event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def pair(cls) -> tuple[DaemonPipe, socket.socket]:
        """Return the daemon's end, and the socket that becomes the rank's."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(reader, writer), theirs

    def send(self, kind: PacketKind, data: bytes = b"") -> None:
        """Send a packet; a rank that does not read it keeps nobody waiting."""
        if not self._writer.is_closing():
            self._writer.write(packet(kind, data))

    async def receive(self) -> bytes | None:
        """Wait for a frame; ``None`` when the rank is gone.

        Raises:
            FrameError: The rank sent something else.
        """
        try:
            header = await self._reader.readexactly(_HEADER.size)
            size, kind = _HEADER.unpack(header)
            if size > MAX_FRAME_BYTES or kind != PacketKind.FRAME.value:
                raise FrameError(f"packet of kind {kind} and {size} bytes: ranks send frames only")
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    def close(self) -> None:
        """Close the pipe."""
        self._writer.close()
