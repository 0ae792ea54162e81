"""One rank's process as its host daemon holds it: pipe, page, output, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from flodl.distributed.hostd.birth import BirthOrder
from flodl.distributed.hostd.console import Console
from flodl.distributed.hostd.nursery import Nursery
from flodl.distributed.hostd.output import RankOutput
from flodl.distributed.lifecycle.host_events import RankEnded
from flodl.distributed.protocol import Frame, FrameError, Message, decode, encode
from flodl.distributed.protocol.messages import Bye, RankError
from flodl.distributed.protocol.values import RankProgress
from flodl.distributed.worker.pipe import DaemonPipe, PacketKind
from flodl.distributed.worker.progress import PageReading, ProgressPage, new_page

_logger = logging.getLogger(__name__)
_LAST_WORDS_S = 0.5
_STANDING = frozenset("TtDZX")
"""States of a process, as the kernel tells them, in which it does not run."""


class Ward:
    """A rank's process, from its start to its end.

    Args:
        order: What it runs.
        log_file: Where its output is kept.
        console: Where people see it.
        relay: Called with each frame that it sends.
    """

    def __init__(
        self, order: BirthOrder, log_file: Path, console: Console, relay: Callable[[Frame], None]
    ) -> None:
        place = order.place
        self.uid, self.number, self.incarnation = place.uid, place.number, place.incarnation
        self._order = order
        self._relay = relay
        prefix = f"[{place.host}/rank{place.number}]"
        self._output = RankOutput(prefix, log_file, console.out, console.err)
        self._pipe: DaemonPipe | None = None
        self._page: ProgressPage | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said_bye = False
        self._is_user_error = self._is_reaped = self._is_doomed = False
        self._cpu = _CpuClock()
        self._born_ns = time.monotonic_ns()
        self.pid = 0

    async def start(self, nursery: Nursery) -> None:
        """Start the process.

        Raises:
            OSError: The system starts no process.
        """
        out, err = await self._output.open()
        self._pipe, theirs = await DaemonPipe.pair()
        page, null = new_page(), os.open(os.devnull, os.O_RDONLY)
        try:
            self.pid = await nursery.bear(self._order, (null, out, err), (theirs.fileno(), page))
        finally:
            theirs.close()
            for fd in (out, err, null):
                os.close(fd)
            self._page = ProgressPage(page)
        if self._is_doomed:
            self.kill()
        self._born_ns = time.monotonic_ns()
        self._reading = asyncio.create_task(self._read())

    def send(self, message: Message, gen: int) -> None:
        """Pass a message on to the rank."""
        frame = Frame(run="", gen=gen, seq=0, member=self.uid, message=message)
        self.pass_on(frame)

    def pass_on(self, frame: Frame) -> None:
        """Pass a frame on to the rank."""
        if self._pipe is not None:
            self._pipe.send(PacketKind.FRAME, encode(frame))

    def note(self, kind: PacketKind) -> None:
        """Tell the rank something about its host."""
        if self._pipe is not None:
            self._pipe.send(kind)

    def kill(self, *, is_gentle: bool = False) -> None:
        """End the rank's process and its group, or ask it to end."""
        if self._is_reaped:
            return
        if not self.pid:
            self._is_doomed = True
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if is_gentle:
                os.kill(self.pid, signal.SIGTERM)
                return
            self._kill_group()
            # a copy that was just made may not have a group of its own yet
            os.kill(self.pid, signal.SIGKILL)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def progress(self) -> RankProgress:
        """Return how far the rank is, from its page and from what the kernel says of it."""
        page = self._page_reading()
        now = time.monotonic_ns()
        seen = max(page.beat_ns, page.moved_ns, self._born_ns)
        # a rank that holds the interpreter lock writes no page, and yet computes
        seen = max(seen, self._cpu.moved_ns(self.pid))
        return RankProgress(
            uid=self.uid,
            step=page.step,
            window_steps=page.window_steps,
            phase=page.phase,
            batch_ms=page.batch_us / 1000,
            beat_age=max(0, now - seen) / 1e9,
        )

    async def end(self, status: int, *, is_oom_killed: bool) -> RankEnded:
        """Take in the last words of a process that was reaped, and return how it ended."""
        self._is_reaped = True
        self._kill_group()  # what it started itself goes with it
        code = os.waitstatus_to_exitcode(status)
        page = self._page_reading()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
        await self._output.settle(_LAST_WORDS_S)
        await self.close()
        return RankEnded(
            uid=self.uid,
            incarnation=self.incarnation,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            is_oom_killed=is_oom_killed and code == -signal.SIGKILL,
            said_bye=self._said_bye,
            is_user_error=self._is_user_error,
            last_step=page.step,
            log_tail=self._output.tail,
        )

    async def close(self) -> None:
        """Close pipe, page and log."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._pipe is not None:
            self._pipe.close()
        if self._page is not None:
            self._page.close()
            self._page = None
        await self._output.close()

    def _page_reading(self) -> PageReading:
        if self._page is None:
            return PageReading(0, 0, 0, 0, 0, "")
        return self._page.read()

    async def _read(self) -> None:
        assert self._pipe is not None
        try:
            while (data := await self._pipe.receive()) is not None:
                frame = decode(data)
                if not isinstance(frame, Frame):
                    raise FrameError(f"a rank sent {frame.kind!r}, which is unknown here")
                self._said_bye |= isinstance(frame.message, Bye)
                self._is_user_error |= (
                    isinstance(frame.message, RankError) and frame.message.kind == "user"
                )
                self._relay(frame)
        except FrameError as error:
            _logger.warning("rank %d broke the protocol and is ended: %s", self.number, error)
            self.kill()


class _CpuClock:
    """Tells when a process last used the CPU, by asking the kernel now and then."""

    def __init__(self) -> None:
        self._ticks = -1
        self._moved_ns = 0

    def moved_ns(self, pid: int) -> int:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return self._moved_ns
        fields = text.rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        if fields[0] not in _STANDING and ticks > self._ticks >= 0:
            self._moved_ns = time.monotonic_ns()
        self._ticks = ticks
        return self._moved_ns
