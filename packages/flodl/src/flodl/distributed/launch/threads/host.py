"""Stands in for the host daemon: starts rank threads, tells of their ends, fences them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from flodl.distributed.collective.store import MemoryStore
from flodl.distributed.config import Timeouts
from flodl.distributed.controller.events import Event, FromHost, FromMember
from flodl.distributed.launch.threads.link import Gate, Killed, ThreadLink
from flodl.distributed.lifecycle.rank import RankMachine
from flodl.distributed.lifecycle.rank_events import FromController
from flodl.distributed.protocol.codec import PROTOCOL
from flodl.distributed.protocol.messages import (
    Accept,
    Bye,
    Fence,
    Fenced,
    Hello,
    Message,
    Progress,
    RankExit,
)
from flodl.distributed.protocol.values import Admission, Device, Offer, RankProgress, Versions
from flodl.distributed.worker.identity import Identity
from flodl.distributed.worker.job import Job
from flodl.distributed.worker.loop import RankLoop
from flodl.distributed.worker.trainee import Trainee

HOST = "threads"
_SIGKILL = 9
_END_S = 10.0
_VERSIONS = Versions(flodl="0", torch=torch.__version__, python="3")


@dataclass(kw_only=True, slots=True)
class Seat:
    """One member: its thread, its link, how often it was started."""

    link: ThreadLink
    thread: threading.Thread
    incarnation: int


def _run_through(loop: RankLoop, _gate: Gate) -> int:
    return loop.run()


@dataclass(kw_only=True)
class ThreadHost:
    """One host with ``count`` CPU ranks, all threads of this process.

    Args:
        run: Name of the run.
        job: Makes the job of a rank from its number and its gate.
        gate: Makes the gate of a rank from its number.
        count: Ranks.
        post: Takes events for the controller.
        timeouts: Deadlines of ranks.
        run_dir: Folder of the run.
        respawn: Times that a rank which died is started again.
        drive: Runs the loop of a rank to its end, and returns the exit status.
    """

    run: str
    job: Callable[[int, Gate], Job]
    gate: Callable[[int], Gate]
    count: int
    post: Callable[[Event], None]
    timeouts: Timeouts
    run_dir: Path
    respawn: int = 0
    drive: Callable[[RankLoop, Gate], int] = _run_through
    seats: dict[str, Seat] = field(default_factory=dict)
    trainees: dict[int, Trainee] = field(default_factory=dict)
    _store: MemoryStore = field(default_factory=MemoryStore)
    _building: threading.Lock = field(default_factory=threading.Lock)
    _frozen: dict[str, float] = field(default_factory=dict)
    """When ranks were first seen not to move."""
    _is_over: bool = False

    def hello(self) -> None:
        """Offer all ranks to the controller."""
        self._offer([(f"{HOST}/cpu/{number}", 0) for number in range(self.count)])

    def take(self, message: Message) -> None:
        """Do what the controller says to the host."""
        match message:
            case Accept():
                for member in message.members:
                    self._start(member, message)
            case Fence():
                seat = self.seats.get(message.uid)
                if seat is not None and seat.incarnation == message.incarnation:
                    seat.link.gate.kill()
                    seat.thread.join(self.timeouts.fence_ack)
                self._tell(Fenced(uid=message.uid, incarnation=message.incarnation))
            case Bye():
                self._is_over = True

    def progress(self, now: float) -> Progress:
        """Return how far the ranks are, which also tells that this host is there.

        Args:
            now: Monotonic seconds.
        """
        rows = []
        for uid, seat in self.seats.items():
            link = seat.link
            if link.gate.is_frozen:
                self._frozen.setdefault(uid, now)
            else:
                self._frozen.pop(uid, None)
            rows.append(
                RankProgress(
                    uid=uid,
                    step=link.step,
                    window_steps=link.window_steps,
                    phase=link.phase,
                    batch_ms=link.batch_ms,
                    beat_age=now - self._frozen.get(uid, now),
                )
            )
        return Progress(ranks=tuple(rows))

    def give(self, uid: str, gen: int, message: Message) -> None:
        """Pass a message on to a rank."""
        seat = self.seats.get(uid)
        if seat is not None:
            seat.link.mailbox.put(FromController(gen=gen, message=message))

    def end(self) -> list[str]:
        """End every thread that still runs; return the names of those that do not end."""
        self._is_over = True
        for seat in self.seats.values():
            seat.link.gate.kill()
        for seat in self.seats.values():
            seat.thread.join(_END_S)
        return [seat.thread.name for seat in self.seats.values() if seat.thread.is_alive()]

    def _offer(self, members: Sequence[tuple[str, int]]) -> None:
        offers = tuple(
            Offer(uid=uid, incarnation=incarnation, device=Device(uuid="cpu", name="CPU"))
            for uid, incarnation in members
        )
        self._tell(Hello(host=HOST, offers=offers, versions=_VERSIONS, proto=PROTOCOL))

    def _start(self, member: Admission, accept: Accept) -> None:
        link = ThreadLink(
            self.gate(member.number),
            self._store,
            lambda message, gen: self.post(FromMember(uid=member.uid, gen=gen, message=message)),
        )
        thread = threading.Thread(
            target=self._run, args=(member, link), name=f"flodl-rank{member.number}", daemon=True
        )
        self.seats[member.uid] = Seat(link=link, thread=thread, incarnation=member.incarnation)
        link.mailbox.put(FromController(gen=accept.gen, message=accept))
        thread.start()

    def _run(self, member: Admission, link: ThreadLink) -> None:
        machine = RankMachine(member.uid, member.incarnation, self.timeouts.controller_grace)
        loop = RankLoop(machine, link, lambda: self._trainee(member, link))
        code: int | None = None
        with contextlib.suppress(Killed):
            code = self.drive(loop, link.gate)
        self._tell(
            RankExit(
                uid=member.uid,
                incarnation=member.incarnation,
                code=code,
                signal=_SIGKILL if code is None else None,
                last_step=link.step,
            )
        )
        if code is None and member.incarnation < self.respawn and not self._is_over:
            self._offer([(member.uid, member.incarnation + 1)])

    def _trainee(self, member: Admission, link: ThreadLink) -> Trainee:
        identity = Identity(
            run=self.run,
            uid=member.uid,
            number=member.number,
            host=HOST,
            device=torch.device("cpu"),
            run_dir=self.run_dir,
        )
        job = self.job(member.number, link.gate)
        with self._building:  # the random generator is the process's
            trainee = Trainee(job, identity, self.timeouts, link.is_interrupted)
        self.trainees[member.number] = trainee
        return trainee

    def _tell(self, message: Message) -> None:
        self.post(FromHost(host=HOST, gen=0, message=message))
