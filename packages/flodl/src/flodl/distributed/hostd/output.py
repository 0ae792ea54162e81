"""What ranks print: each line with the rank's name before it, and in the rank's own log file."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

_LONGEST_LINE = 64 * 1024
_TAIL_LINES = 40
Sink = Callable[[bytes], None]


class RankOutput:
    """Collects one rank's two streams until both end.

    Args:
        prefix: Stands before each line, such as ``[host/rank1]``.
        file: Log file; lines are appended.
        out: Takes lines of standard output; must not wait.
        err: Takes lines of standard error.
    """

    def __init__(self, prefix: str, file: Path, out: Sink, err: Sink) -> None:
        self._prefix = f"{prefix} ".encode()
        self._log = file.open("ab", buffering=0)
        self._sinks = (out, err)
        self._pumps: list[asyncio.Task[None]] = []
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)

    async def open(self) -> tuple[int, int]:
        """Return descriptors for the rank's standard output and error; the caller closes them."""
        ends: list[int] = []
        for sink in self._sinks:
            read_end, write_end = os.pipe()
            ends.append(write_end)
            reader = asyncio.StreamReader(limit=_LONGEST_LINE)
            transport = await _read_into(reader, read_end)
            self._pumps.append(asyncio.create_task(self._pump(reader, transport, sink)))
        return ends[0], ends[1]

    @property
    def tail(self) -> str:
        """The last lines, for a report of the rank's death."""
        return b"".join(self._tail).decode("utf-8", "replace")

    async def settle(self, patience_s: float) -> None:
        """Take in what is still in the pipes.

        A process that the rank left behind may hold them open; it is not waited for.
        """
        if self._pumps:
            await asyncio.wait(self._pumps, timeout=patience_s)

    async def close(self) -> None:
        """Close pipes and log."""
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self._log.close()

    async def _pump(
        self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport, sink: Sink
    ) -> None:
        try:
            while True:
                line = await self._line(reader)
                if not line:
                    return
                if not line.endswith(b"\n"):
                    line += b"\n"
                self._tail.append(line)
                self._log.write(line)
                sink(self._prefix + line)
        finally:
            transport.close()

    async def _line(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError as error:
            return await reader.readexactly(error.consumed or _LONGEST_LINE)


async def _read_into(reader: asyncio.StreamReader, fd: int) -> asyncio.ReadTransport:
    pipe = os.fdopen(fd, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return transport
