"""A rank's connection to its controller: a mailbox to read between batches, and a way to answer.

Two threads move the messages, so that the thread that trains does no input or output. The rank's
progress page is written here too, so that its host sees it live.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from flodl.distributed.cluster.kinship import die_with_parent
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.lifecycle.rank_events import (
    FromController,
    HostLeaseExpired,
    LinkLost,
    LinkRestored,
)
from flodl.distributed.protocol import (
    Frame,
    GenerationGate,
    Message,
    UnknownFrame,
    decode,
    encode,
)
from flodl.distributed.protocol.messages import (
    Abort,
    Nack,
    Reconfigure,
    StoreReply,
    StoreRequest,
)
from flodl.distributed.worker.pipe import PacketKind, RankPipe
from flodl.distributed.worker.progress import ProgressPage
from flodl.distributed.worker.store import RemoteStore

Mail: TypeAlias = FromController | LinkLost | LinkRestored | HostLeaseExpired
_URGENT = (Reconfigure, Abort)
_BEAT_S = 0.5
_NOTES: dict[PacketKind, Mail] = {
    PacketKind.LINK_UP: LinkRestored(),
    PacketKind.LINK_DOWN: LinkLost(),
    PacketKind.HOLD: HostLeaseExpired(),
}


class Mailbox:
    """What has arrived and was not yet read; any thread may put, one thread takes.

    Args:
        on_urgent: Called when something urgent arrives, before it can be taken.
        on_calm: Called when all that was urgent has been taken.
    """

    def __init__(
        self,
        on_urgent: Callable[[], None] = lambda: None,
        on_calm: Callable[[], None] = lambda: None,
    ) -> None:
        self._mail: deque[Mail] = deque()
        self._changed = threading.Condition()
        self._has_urgent = False
        self._on_urgent, self._on_calm = on_urgent, on_calm

    def put(self, mail: Mail) -> None:
        """Add something."""
        with self._changed:
            if _is_urgent(mail):
                self._has_urgent = True
                self._on_urgent()
            self._mail.append(mail)
            self._changed.notify_all()

    def take(self) -> list[Mail]:
        """Return all that has arrived, in order, without waiting."""
        if not self._mail:
            return []
        with self._changed:
            mail = list(self._mail)
            self._mail.clear()
            if self._has_urgent:
                self._has_urgent = False
                self._on_calm()
        return mail

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something; return whether there is."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._mail), timeout_s)

    @property
    def has_urgent(self) -> bool:
        """Whether something waits for which a collective or a formation is to be given up."""
        return self._has_urgent


class Carrier(Protocol):
    """What carries a rank's packets; one thread sends while another receives."""

    def send(self, data: bytes) -> bool:
        """Send a frame; false when nobody takes it any more."""

    def receive(self) -> tuple[PacketKind, bytes] | None:
        """Wait for a packet; ``None`` when there will be none any more."""

    def shut(self) -> None:
        """Let a waiting :meth:`receive` return; what was sent still arrives."""

    def close(self) -> None:
        """Give up what it holds."""


class RankLink:
    """Connects a rank to its controller, through its host daemon unless something else carries it.

    Args:
        place: The rank's place in the run, with the descriptors of pipe and page.
        carrier: Carries packets in the daemon's place.
        page: Progress page; by default that of the place.
        store_timeout_s: Seconds in which the store must answer.
        on_orphaned: What to do when the daemon is gone; by default the process ends.
    """

    def __init__(
        self,
        place: RunPlace,
        *,
        carrier: Carrier | None = None,
        page: ProgressPage | None = None,
        store_timeout_s: float = 60.0,
        on_orphaned: Callable[[], None] | None = None,
    ) -> None:
        if place.parent:
            die_with_parent(place.parent)
        self.place = place
        self.page = ProgressPage(place.page_fd) if page is None else page
        self.store = RemoteStore(self._send_request, store_timeout_s)
        """Store over which groups are formed; it fails while something urgent waits."""
        self.mailbox = Mailbox(
            on_urgent=lambda: self.store.close("the generation is over"),
            on_calm=self.store.reopen,
        )
        self._on_orphaned = _end_with_daemon if on_orphaned is None else on_orphaned
        self._pipe: Carrier = RankPipe(place.link_fd) if carrier is None else carrier
        self._gate = GenerationGate()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_closing = False
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._receive, "flodl-link-in"), (self._send, "flodl-link-out"))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def dropped(self) -> int:
        """Messages of generations that were over, which were dropped."""
        return self._gate.dropped

    def send(self, message: Message, gen: int = 0) -> None:
        """Send a message under a generation; returns at once, any thread may call it.

        Raises:
            FrameError: The message is larger than the controller takes.
        """
        frame = Frame(run=self.place.nonce, gen=gen, seq=0, member=self.place.uid, message=message)
        self._outgoing.put(encode(frame))

    def take(self) -> list[Mail]:
        """Return what has arrived since the last call; costs nothing when that is nothing."""
        return self.mailbox.take()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has arrived; return whether it has."""
        return self.mailbox.wait(timeout_s)

    def is_interrupted(self) -> bool:
        """Return whether to give up what is waited for, and take the mail instead."""
        return self.mailbox.has_urgent

    def progress(
        self, phase: str, *, step: int, window_steps: int = 0, batch_ms: float = 0.0
    ) -> None:
        """Show the host how far this rank is; costs a few microseconds."""
        self.page.write(phase, step=step, window_steps=window_steps, batch_ms=batch_ms)

    def close(self, patience_s: float = 5.0) -> None:
        """Send what was given to :meth:`send`, then close the link. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._outgoing.put(None)
        self._threads[1].join(patience_s)
        self._pipe.shut()
        self._threads[0].join(patience_s)
        self._pipe.close()
        self.page.close()

    def _send_request(self, request: StoreRequest) -> None:
        self.send(request, self._gate.gen)

    def _send(self) -> None:
        while True:
            self.page.beat()
            try:
                data = self._outgoing.get(timeout=_BEAT_S)
            except queue.Empty:
                continue
            if data is None or not self._pipe.send(data):
                return

    def _receive(self) -> None:
        while True:
            packet = self._pipe.receive()
            if packet is None:
                break
            kind, data = packet
            if kind is PacketKind.FRAME:
                self._take_frame(data)
            else:
                self.mailbox.put(_NOTES[kind])
        self.store.close("the host daemon is gone")
        if not self._is_closing:
            self._on_orphaned()

    def _take_frame(self, data: bytes) -> None:
        frame = decode(data)
        if isinstance(frame, UnknownFrame):
            self.send(Nack(kind=frame.kind, seq=frame.seq, reason="unknown type"), frame.gen)
        elif isinstance(frame.message, StoreReply):
            self.store.answer(frame.message)
        elif self._gate.admits(frame.gen):
            self._gate.gen = frame.gen
            self.mailbox.put(FromController(gen=frame.gen, message=frame.message))


def _is_urgent(mail: Mail) -> bool:
    if isinstance(mail, FromController):
        return isinstance(mail.message, _URGENT)
    return isinstance(mail, HostLeaseExpired)


def _end_with_daemon() -> None:
    """End this process and its group: nobody is left to fence it, so it must not go on."""
    # where the system kills the children of a dead process by itself, this is never reached
    time.sleep(0.05)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
