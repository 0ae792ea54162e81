"""A rank that is its own host daemon, where torchrun or Slurm has started it.

A thread with an event loop keeps the websocket to the controller and feeds the machine of a host
that brings one member, whose process is this one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from flodl.core.errors import JoinRejected
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.lifecycle.host_events import (
    BeatAcked,
    Connect,
    ExitHost,
    FromController,
    HoldRanks,
    HostCommand,
    HostEvent,
    Kill,
    LinkDown,
    LinkUp,
    PagesRead,
    RankEnded,
    RankStarted,
    SendUp,
    Spawn,
    TellLink,
    Tick,
)
from flodl.distributed.protocol import Frame, decode, encode
from flodl.distributed.protocol.messages import Abort, Beat, Bye, RankError, Reject
from flodl.distributed.protocol.values import RankProgress
from flodl.distributed.worker.pipe import PacketKind
from flodl.distributed.worker.progress import ProgressPage
from flodl.distributed.worker.uplink import Endpoint, Uplink

_logger = logging.getLogger(__name__)
_PAGES_S = 0.5
_PARTING_S = 5.0


class Machine(Protocol):
    """What decides: the pure machine of a host, or a double of it."""

    def handle(self, event: HostEvent, now: float) -> Sequence[HostCommand]:
        """Return what is to be done about an event."""

    def next_deadline(self) -> float | None:
        """Return the time at which ``Tick`` is due at the latest."""


class OwnHost:
    """Carries the packets of the one rank that this process is.

    Args:
        endpoint: Where the controller is.
        host: Name that this process goes by as a host; no other process may have it.
        machine: Decides for the host.
        page: The rank's progress page.
        timeouts: Deadlines.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        host: str,
        machine: Machine,
        page: ProgressPage,
        *,
        timeouts: Timeouts,
    ) -> None:
        self._endpoint, self._host, self._timeouts = endpoint, host, timeouts
        self._machine, self._page = machine, page
        self._packets: queue.SimpleQueue[tuple[PacketKind, bytes] | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._said_bye = self._is_user_error = False
        self._uid, self._incarnation = "", 0
        self.refusal: JoinRejected | None = None
        """Why the controller does not let this process in, ``None`` while it may."""
        self._thread = threading.Thread(target=self._run, name="flodl-host", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> bool:
        """Send a frame; false when the connection is over for good."""
        if self._over.is_set():
            return False
        self._loop.call_soon_threadsafe(self._send, data)
        return True

    def receive(self) -> tuple[PacketKind, bytes] | None:
        """Wait for a packet; ``None`` when there will be none any more."""
        return self._packets.get()

    def shut(self) -> None:
        """Tell the controller that this rank ends, and part from it."""
        if not self._over.is_set():
            self._loop.call_soon_threadsafe(self._part)
        self._thread.join(_PARTING_S + 2.0)

    def close(self) -> None:
        """Do nothing: :meth:`shut` has given up everything."""

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._packets.put(None)

    async def _serve(self) -> None:
        self._uplink = Uplink(
            self._endpoint,
            self._host,
            receive=self._receive,
            confirm=lambda sent_at: self._feed(BeatAcked(sent_at=sent_at)),
            timeouts=self._timeouts,
        )
        self._keep(self._read_page())
        self._feed(Tick())
        await self._over.wait()
        if self._timer is not None:
            self._timer.cancel()
        await self._uplink.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _feed(self, event: HostEvent) -> None:
        for command in self._machine.handle(event, time.monotonic()):
            self._do(command)
        self._set_timer()

    def _do(self, command: HostCommand) -> None:
        match command:
            case Connect(after=after):
                self._keep(self._dial(after))
            case SendUp(message=Beat()):
                pass  # the uplink beats by itself, and confirms with it what has arrived
            case SendUp(message=message, gen=gen):
                self._uplink.send(message, gen)
            case Spawn(uid=uid, incarnation=incarnation, accept=accept):
                self._uid, self._incarnation = uid, incarnation
                frame = Frame(run="", gen=accept.gen, seq=0, member=uid, message=accept)
                self._packets.put((PacketKind.FRAME, encode(frame)))
                self._loop.call_soon(self._feed, RankStarted(uid=uid, incarnation=incarnation))
            case Kill():
                os.kill(os.getpid(), signal.SIGTERM if command.is_gentle else signal.SIGKILL)
            case HoldRanks():
                self._packets.put((PacketKind.HOLD, b""))
            case TellLink(is_up=is_up):
                kind = PacketKind.LINK_UP if is_up else PacketKind.LINK_DOWN
                self._packets.put((kind, b""))
            case ExitHost():
                self._over.set()

    async def _dial(self, after: float) -> None:
        await asyncio.sleep(after)
        try:
            reason = await self._uplink.connect(lambda: self._feed(LinkUp()))
        except JoinRejected as error:
            self.refusal = error
            _logger.warning("this process was turned away: %s", error)
            self._over.set()
        else:
            self._feed(LinkDown(reason=reason))

    def _receive(self, frame: Frame) -> None:
        if frame.member:
            self._packets.put((PacketKind.FRAME, encode(frame)))
            return
        if isinstance(frame.message, Reject):
            _logger.warning("this process was turned away: %s", frame.message.reason)
        elif isinstance(frame.message, Abort):
            _logger.error("the controller ended the run: %s", frame.message.reason)
        self._feed(FromController(gen=frame.gen, message=frame.message))

    def _send(self, data: bytes) -> None:
        frame = decode(data)
        if not isinstance(frame, Frame):
            return
        self._said_bye |= isinstance(frame.message, Bye)
        self._is_user_error |= isinstance(frame.message, RankError) and frame.message.kind == "user"
        self._uplink.send(frame.message, frame.gen, self._uid)

    def _part(self) -> None:
        self._feed(
            RankEnded(
                uid=self._uid,
                incarnation=self._incarnation,
                code=0 if self._said_bye else 1,
                said_bye=self._said_bye,
                is_user_error=self._is_user_error,
                last_step=self._page.read().step,
            )
        )
        self._loop.call_later(_PARTING_S, self._over.set)

    async def _read_page(self) -> None:
        while True:
            await asyncio.sleep(_PAGES_S)
            if not self._uid:
                continue
            page = self._page.read()
            age = max(0, time.monotonic_ns() - page.seen_ns) / 1e9 if page.seen_ns else 0.0
            rank = RankProgress(
                uid=self._uid,
                step=page.step,
                window_steps=page.window_steps,
                phase=page.phase,
                batch_ms=page.batch_us / 1000,
                beat_age=age,
            )
            self._feed(PagesRead(ranks=(rank,)))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._machine.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = self._loop.call_later(delay, self._feed, Tick())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("the connection to the controller failed", exc_info=error)
            self._over.set()
