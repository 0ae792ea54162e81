"""From the threads that publish to the streams that watch, through one event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from flodl.records.board import BoardEvent, RunBoard
from flodl.records.record import Record, delivers, encode_json
from flodl.web.brief import brief_line
from flodl.web.budget import RequestBudget
from flodl.web.errors import ApiError

MAX_STREAMS = 64
STREAMS_PER_BROWSER = 4
_BATCH_S = 0.2
_PING_S = 15.0
_STUCK_S = 30.0
_MOST_CHUNKS = 64
_MOST_BYTES = 1 << 20
_MOST_WAITING = 50_000

PING = b": ping\n\n"


def frame(event: str, data: bytes, seq: int | None = None) -> bytes:
    """Return one server-sent event; ``data`` has no line breaks."""
    head = b"" if seq is None else b"id: %d\n" % seq
    return b"%bevent: %b\ndata: %b\n\n" % (head, event.encode(), data)


class View(NamedTuple):
    """What one stream shows; streams of equal views share their bytes."""

    scope: str
    alerts: str | None
    first: int
    """First child shown, in natural order."""
    most: int | None
    """Children shown at most."""
    has_clock: bool
    digits: int | None = None
    """Significant digits of children's measurements, ``None`` for all."""

    @property
    def children(self) -> slice:
        """The children shown."""
        end = None if self.most is None else self.first + self.most
        return slice(self.first, end)

    @property
    def is_partial(self) -> bool:
        """Whether some children may be left out."""
        return self.first > 0 or self.most is not None


class Client:
    """One open stream: what waits to be sent to it.

    Args:
        view: What it shows; ``None`` for the epoch feed.
        browser: Which browser session it belongs to, ``None`` for a program.
    """

    def __init__(self, view: View | None, browser: str | None) -> None:
        self.view = view
        self.browser = browser
        self.last_seq = 0
        """Newest record it was given; nothing up to it is given again."""
        self.knows_the_end = False
        self.sending_since: float | None = None
        self.task: asyncio.Task[None] | None = None
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ready = asyncio.Event()
        self.is_ending = False
        """Whether the stream ends after what waits."""

    def offer(self, chunk: bytes) -> None:
        """Queue some bytes; a client that cannot keep up is told to start afresh."""
        if self.is_ending:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        if len(self._chunks) > _MOST_CHUNKS or self._size > _MOST_BYTES:
            self.resync()
        self._ready.set()

    def resync(self) -> None:
        """Drop what waits, tell the client that it missed something, and end."""
        self._chunks.clear()
        self._chunks.append(frame("resync", b"{}"))
        self.end()

    def end(self) -> None:
        """Let the stream end after what waits."""
        self.is_ending = True
        self._ready.set()

    async def next_chunk(self) -> bytes | None:
        """Return the bytes to send next, ``None`` at the end."""
        while not self._chunks:
            if self.is_ending:
                return None
            self._ready.clear()
            await self._ready.wait()
        chunk = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        return chunk


class Hub:
    """Gives every open stream its share of what is published.

    Publishing threads only append to a queue and wake the loop; everything else happens in the
    loop, in batches, and bytes that several streams get are made once.

    Args:
        board: The run that is watched.
    """

    def __init__(self, board: RunBoard) -> None:
        self.board = board
        self.budget = RequestBudget(lambda: board.status not in {"waiting", "running"})
        """How many requests are answered while the run goes on."""
        self._clients: set[Client] = set()
        self._inbox: deque[Sequence[Record]] = deque()
        self._waiting = 0
        self._is_scheduled = False
        self._flushed_at = 0.0
        self._seq = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: list[Callable[[], None]] = []
        self._ticker: asyncio.Task[None] | None = None
        self._is_closed = False
        self._resyncs = 0
        self.snapshots_at_end = 0
        """How often the whole run was fetched after its end."""

    @property
    def stream_count(self) -> int:
        """Number of open streams."""
        return len(self._clients)

    def start(self) -> None:
        """Begin to listen; called in the loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._seq = self.board.tree.seq
            self._leave.append(self.board.tree.listen(self._on_records))
            _, leave = self.board.listen(self._on_board, since_epoch=1 << 62)
            self._leave.append(leave)
            self._ticker = self._loop.create_task(self._tick())
            self.board.count_losses("streams", lambda: self._resyncs)

    def wait_for_viewers(self, at_least_s: float, at_most_s: float) -> None:
        """Wait until open pages have fetched the whole run, from any thread but the loop's.

        Args:
            at_least_s: Seconds to wait in any case.
            at_most_s: Seconds to wait for viewers.
        """
        started, viewers = time.monotonic(), len(self._clients)
        while True:
            waited = time.monotonic() - started
            is_served = self.snapshots_at_end >= viewers or not self._clients
            if waited >= at_least_s and (is_served or waited >= at_most_s):
                return
            time.sleep(0.02)

    def admit(self, client: Client) -> bool:
        """Register a stream; return false for a browser that has enough of them.

        Raises:
            ApiError: There are too many streams.
        """
        self.start()
        if self._is_closed:
            raise ApiError(503, "closing", "the server is closing")
        if client.browser is not None:
            same = sum(1 for other in self._clients if other.browser == client.browser)
            if same >= STREAMS_PER_BROWSER:
                return False
        if len(self._clients) >= MAX_STREAMS:
            raise ApiError(503, "too_many_streams", f"{MAX_STREAMS} streams are open already")
        self._clients.add(client)
        return True

    def dismiss(self, client: Client) -> None:
        """Forget a stream."""
        self._clients.discard(client)

    async def close(self, *, patience_s: float = 1.0) -> None:
        """End every stream; those that do not read are cut off."""
        self._is_closed = True
        self.budget.release()
        for leave in self._leave:
            leave()
        if self._loop is None:
            return
        self._flush()
        for client in tuple(self._clients):
            client.end()
        tasks = [client.task for client in self._clients if client.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=patience_s)
            for task in late:
                task.cancel()
        if self._ticker is not None:
            self._ticker.cancel()

    # ------------------------------------------------------------ in the publishing threads

    def _on_records(self, records: Sequence[Record]) -> None:
        self._inbox.append(records)
        self._waiting += len(records)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call(self._wake)

    def _on_board(self, event: BoardEvent, payload: bytes, epochs: int) -> None:
        self._call(self._broadcast, event, payload, epochs)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # the loop has ended between our last look and this call; nobody watches any more
            if not self._loop.is_closed():
                raise

    # ------------------------------------------------------------ in the loop

    def _wake(self) -> None:
        assert self._loop is not None
        wait = self._flushed_at + _BATCH_S - self._loop.time()
        if wait <= 0:
            self._flush()
        else:
            self._loop.call_later(wait, self._flush)

    def _flush(self) -> None:
        assert self._loop is not None
        self._is_scheduled = False
        self._flushed_at = self._loop.time()
        batch: list[Record] = []
        while self._inbox:
            batch.extend(self._inbox.popleft())
        has_overflowed = self._waiting > _MOST_WAITING
        self._waiting = 0
        if not batch:
            return
        self._seq = max(self._seq, batch[-1].seq)
        watchers: dict[View, list[Client]] = {}
        for client in self._clients:
            if client.view is not None:
                watchers.setdefault(client.view, []).append(client)
        for view, clients in watchers.items():
            if has_overflowed:
                for client in clients:
                    client.resync()
                self._resyncs += len(clients)
            else:
                self._give(batch, view, clients)

    def _give(self, batch: Sequence[Record], view: View, clients: Sequence[Client]) -> None:
        wanted = self._wanted(batch, view)
        if not wanted:
            return
        frames = [
            frame("record", brief_line(record, view.scope, view.digits), record.seq)
            for record in wanted
        ]
        shared = b"".join(frames)
        first, last = wanted[0].seq, wanted[-1].seq
        for client in clients:
            was_ending = client.is_ending
            if client.last_seq < first:
                client.offer(shared)
            else:
                # its backlog reached into this batch
                seen = client.last_seq
                rest = b"".join(
                    made for record, made in zip(wanted, frames, strict=True) if record.seq > seen
                )
                if rest:
                    client.offer(rest)
            client.last_seq = max(client.last_seq, last)
            self._resyncs += client.is_ending and not was_ending

    def _wanted(self, batch: Sequence[Record], view: View) -> list[Record]:
        scope, alerts = view.scope, view.alerts
        wanted = [r for r in batch if delivers(scope, r.kind, r.path, alerts=alerts)]
        if view.is_partial and wanted:
            shown = {scope, *self.board.tree.child_paths(scope, view.children)}
            wanted = [r for r in wanted if r.kind != "node" or r.path in shown]
        return wanted

    def _broadcast(self, event: BoardEvent, payload: bytes, epochs: int) -> None:
        # records that were published before must arrive before
        self._flush()
        for client in tuple(self._clients):
            if event == "complete":
                if not client.knows_the_end:
                    client.knows_the_end = True
                    seq = client.last_seq if client.view is None else self._seq
                    client.offer(frame("complete", payload, seq))
            elif client.view is None and client.last_seq < epochs:
                client.last_seq = epochs
                client.offer(frame("epoch", payload, epochs))

    async def _tick(self) -> None:
        assert self._loop is not None
        pinged_at = self._loop.time()
        while True:
            await asyncio.sleep(1.0)
            now = self._loop.time()
            face: bytes | None = None
            must_ping = now - pinged_at >= _PING_S
            if must_ping:
                pinged_at = now
            for client in tuple(self._clients):
                if client.sending_since is not None and now - client.sending_since > _STUCK_S:
                    if client.task is not None:
                        client.task.cancel()
                elif client.view is not None and client.view.has_clock:
                    if face is None:
                        face = frame("clock", encode_json(self.board.clock_face()), self._seq)
                    client.offer(face)
                elif must_ping:
                    client.offer(PING)
