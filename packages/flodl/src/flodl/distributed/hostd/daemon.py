"""The host daemon around its pure machine: processes, pipes, one websocket, the clock."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from flodl.core.errors import JoinRejected
from flodl.distributed.cluster.kinship import become_subreaper
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.collective.segments import remove_kept, sweep_shared_memory
from flodl.distributed.hostd.birth import BirthOrder
from flodl.distributed.hostd.console import Console
from flodl.distributed.hostd.memory import OomWatch
from flodl.distributed.hostd.nursery import Nursery
from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.hostd.ward import Ward
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
from flodl.distributed.protocol import Frame
from flodl.distributed.protocol.messages import Beat, Reject
from flodl.distributed.worker.pipe import PacketKind
from flodl.distributed.worker.uplink import Endpoint, Uplink

_logger = logging.getLogger(__name__)
_PAGES_S = 0.5
_EXEC_FAILED = 127
EXIT_DONE, EXIT_RETRY = 0, 1


class Machine(Protocol):
    """What decides: the pure machine of a host, or a double of it."""

    def handle(self, event: HostEvent, now: float) -> Sequence[HostCommand]:
        """Return what is to be done about an event."""

    def next_deadline(self) -> float | None:
        """Return the time at which ``Tick`` is due at the latest."""


class HostDaemon:
    """Carries out what the machine of this host decides.

    Args:
        options: The run, and what this host brings along.
        machine: Decides.
        nursery: Starts ranks; it has been started itself.
    """

    def __init__(self, options: HostOptions, machine: Machine, nursery: Nursery) -> None:
        self._options = options
        self._machine = machine
        self._nursery = nursery
        self._uplink = Uplink(
            Endpoint(address=options.address, token=options.token),
            options.host,
            receive=self._receive,
            confirm=lambda sent_at: self.feed(BeatAcked(sent_at=sent_at)),
            timeouts=options.timeouts,
        )
        self._console = Console(sys.stdout.buffer, sys.stderr.buffer)
        self._logs = Path(options.run_dir) / "logs"
        self._wards: dict[str, Ward] = {}
        self._by_pid: dict[int, Ward] = {}
        self._early: dict[int, int] = {}
        self._births = 0
        self._oom = OomWatch()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._exit_code: int | None = None
        self._is_run_over = False
        self._over = asyncio.Event()

    async def run(self) -> int:
        """Serve until the machine ends the host; returns the status to exit with."""
        become_subreaper()
        self._logs.mkdir(parents=True, exist_ok=True)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.call_soon(self._reap)  # the zygote may have ended before that
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, EXIT_RETRY)
        self._keep(self._read_pages())
        if not self._options.lasts:
            self._keep(self._watch_input())
        self.feed(Tick())
        try:
            await self._over.wait()
        finally:
            await self._close()
        return EXIT_DONE if self._exit_code is None else self._exit_code

    def feed(self, event: HostEvent) -> None:
        """Give the machine an event and do what it says."""
        for command in self._machine.handle(event, time.monotonic()):
            self._do(command)
        self._set_timer()

    # ------------------------------------------------------------ what the machine says

    def _do(self, command: HostCommand) -> None:
        match command:
            case Connect(after=after):
                self._keep(self._dial(after))
            case SendUp(message=Beat()):
                pass  # the uplink beats by itself, and confirms with it what has arrived
            case SendUp(message=message, gen=gen):
                self._uplink.send(message, gen)
            case Spawn():
                self._keep(self._spawn(command))
            case Kill(uid=uid, incarnation=incarnation, is_gentle=is_gentle):
                ward = self._wards.get(uid)
                if ward is not None and ward.incarnation == incarnation:
                    ward.kill(is_gentle=is_gentle)
            case HoldRanks():
                self._tell(PacketKind.HOLD)
            case TellLink(is_up=is_up):
                self._tell(PacketKind.LINK_UP if is_up else PacketKind.LINK_DOWN)
            case ExitHost(code=code):
                self._is_run_over = True
                self._end(code)

    def _tell(self, kind: PacketKind) -> None:
        for ward in self._wards.values():
            ward.note(kind)

    def _end(self, code: int) -> None:
        if self._exit_code is None:
            self._exit_code = code
        self._over.set()

    async def _dial(self, after: float) -> None:
        await asyncio.sleep(after)
        try:
            reason = await self._uplink.connect(lambda: self.feed(LinkUp()))
        except JoinRejected as error:
            self._say_turned_away(str(error))
            self._end(EXIT_RETRY)
        else:
            self.feed(LinkDown(reason=reason))

    async def _spawn(self, spawn: Spawn) -> None:
        ward = Ward(
            self._order(spawn), self._logs / f"rank{spawn.number}.log", self._console, self._relay
        )
        self._wards[spawn.uid] = ward
        self._births += 1
        try:
            await ward.start(self._nursery)
        except OSError as error:
            self._births -= 1
            await ward.close()
            self._wards.pop(spawn.uid, None)
            self.feed(
                RankEnded(
                    uid=spawn.uid,
                    incarnation=spawn.incarnation,
                    code=_EXEC_FAILED,
                    log_tail=f"the process could not be started: {error}",
                )
            )
            return
        self._by_pid[ward.pid] = ward
        ward.send(spawn.accept, spawn.accept.gen)
        self.feed(RankStarted(uid=spawn.uid, incarnation=spawn.incarnation))
        status = self._early.pop(ward.pid, None)
        self._births -= 1
        if not self._births:
            self._early.clear()
        if status is not None:
            self._take_end(ward.pid, status)

    def _order(self, spawn: Spawn) -> BirthOrder:
        options = self._options
        ordinal = int(spawn.uid.rpartition("/")[2])
        device = options.devices[ordinal]
        has_gpu = options.vendor != "cpu"
        place = RunPlace(
            run=options.run,
            nonce=spawn.accept.run_nonce or options.nonce,
            run_dir=options.run_dir,
            ordinal=options.ordinal,
            results=options.results,
            payload=options.payload,
            entry=options.entry,
            host=options.host,
            uid=spawn.uid,
            number=spawn.number,
            incarnation=spawn.incarnation,
            device="cuda:0" if has_gpu else "cpu",
            device_index=device.index if has_gpu else -1,
            threads=options.threads,
            parent=os.getpid(),
            data_address=options.data_address,
        )
        return BirthOrder(
            place=place,
            environ=options.rank_environ(ordinal),
            cwd=options.cwd,
            command=options.command,
        )

    # ------------------------------------------------------------ what happens

    def _receive(self, frame: Frame) -> None:
        if not frame.member:
            if isinstance(frame.message, Reject):
                self._say_turned_away(frame.message.reason)
            self.feed(FromController(gen=frame.gen, message=frame.message))
            return
        ward = self._wards.get(frame.member)
        if ward is None:
            _logger.debug("%s is gone; its %s is dropped", frame.member, frame.message)
        else:
            ward.pass_on(frame)

    def _say_turned_away(self, reason: str) -> None:
        line = f"flodl: host {self._options.host} was turned away: {reason}\n"
        self._console.err(line.encode())

    def _relay(self, frame: Frame) -> None:
        self._uplink.send(frame.message, frame.gen, frame.member)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._nursery.forget(pid, status)
            if pid in self._by_pid:
                self._take_end(pid, status)
            elif self._births:
                # perhaps a rank that ended before its start was noted; else an orphan of one
                self._early[pid] = status

    def _take_end(self, pid: int, status: int) -> None:
        ward = self._by_pid.pop(pid)
        if self._wards.get(ward.uid) is ward:
            del self._wards[ward.uid]
        self._keep(self._bury(ward, status))

    async def _bury(self, ward: Ward, status: int) -> None:
        self.feed(await ward.end(status, is_oom_killed=self._oom.has_killed()))

    async def _read_pages(self) -> None:
        while True:
            await asyncio.sleep(_PAGES_S)
            if self._by_pid:
                ranks = tuple(ward.progress() for ward in self._by_pid.values())
                self.feed(PagesRead(ranks=ranks))

    async def _watch_input(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(4096):
            pass
        self._end(EXIT_RETRY)

    # ------------------------------------------------------------ clock and end

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._machine.next_deadline()
        if deadline is not None and not self._over.is_set():
            loop = asyncio.get_running_loop()
            delay = max(0.0, deadline - time.monotonic())
            self._timer = loop.call_later(delay, self.feed, Tick())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("the host daemon failed", exc_info=error)
            self._end(EXIT_RETRY)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for ward in self._by_pid.values():
            ward.kill()
        await self._nursery.close()
        await self._uplink.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reap_all()
        for ward in (*self._by_pid.values(), *self._wards.values()):
            await ward.close()
        self._console.close()
        prefix = f"flodl-{self._options.run}-"
        sweep_shared_memory(prefix)
        if self._is_run_over:  # else the controller may want what ranks have kept
            remove_kept(prefix)

    async def _reap_all(self) -> None:
        """Kill and collect what is left, ranks' own orphans included."""
        give_up = time.monotonic() + 5.0
        while time.monotonic() < give_up:
            for pid in _children():
                _kill(pid)
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid:
                self._nursery.forget(pid, status)
            else:
                await asyncio.sleep(0.01)


def _children() -> list[int]:
    file = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run_daemon(options: HostOptions, machine: Machine, nursery: Nursery) -> int:
    """Be the daemon of this host until its run is over; returns the status to exit with."""

    async def serve() -> int:
        return await HostDaemon(options, machine, nursery).run()

    return asyncio.run(serve())
