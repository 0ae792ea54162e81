"""Sends a board to another process, as it changes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

from flodl.core.log import warn_once
from flodl.records.board import BoardEvent, RunBoard
from flodl.records.record import Record, encode_json

RECORD, EPOCH, BOARD, TIMELINE, EMBED, STOP = b"R", b"E", b"B", b"T", b"O", b"S"
_SYNC_S = 1.0
_MOST_WAITING = 50_000
_logger = logging.getLogger(__name__)


class BoardMirror:
    """Writes what a board shows to a stream, from a thread of its own.

    Args:
        board: The board.
        stream: Where messages go.
    """

    def __init__(self, board: RunBoard, stream: IO[bytes]) -> None:
        self.dropped = 0
        """Messages that were lost because the other process did not keep up."""
        self._board = board
        self._stream = stream
        self._waiting: deque[bytes] = deque()
        self._wake = threading.Event()
        self._is_ending = False
        self._sent_state = b""
        self._sent_until: dict[str, float] = {}
        self._leave: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="flodl-mirror", daemon=True)

    def start(self) -> None:
        """Send what is there, and what comes."""
        past, leave = self._board.tree.follow(self._on_records)
        self._leave.append(leave)
        self._waiting.extendleft(RECORD + record.line for record in reversed(past))
        epochs, leave = self._board.listen(self._on_board)
        self._leave.append(leave)
        self._waiting.extend(EPOCH + line for line in epochs)
        self._board.count_losses("mirror", lambda: self.dropped)
        self._thread.start()

    def send(self, kind: bytes, body: Any) -> None:
        """Send one more message."""
        self._waiting.append(kind + encode_json(body))
        self._wake.set()

    def end(self, *, linger: float) -> None:
        """Send what is left and the last message."""
        for leave in self._leave:
            leave()
        self._linger = linger
        self._is_ending = True
        self._wake.set()
        self._thread.join(5.0)

    def _on_records(self, records: Sequence[Record]) -> None:
        self._waiting.extend(RECORD + record.line for record in records)
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._wake.set()

    def _on_board(self, event: BoardEvent, payload: bytes, _epochs: int) -> None:
        if event == "epoch":
            self._waiting.append(EPOCH + payload)
        self._wake.set()

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait(_SYNC_S)
                self._wake.clear()
                is_last = self._is_ending
                self._write_waiting()
                self._sync_state()
                self._sync_timelines()
                if is_last:
                    self._write([STOP + encode_json({"linger": self._linger})])
                    return
        except OSError as error:
            warn_once(_logger, "the portal's process is gone (%s); training goes on", error)

    def _write_waiting(self) -> None:
        self._write([self._waiting.popleft() for _ in range(len(self._waiting))])

    def _sync_state(self) -> None:
        state = encode_json(self._board.state())
        if state != self._sent_state:
            self._sent_state = state
            self._write([BOARD + state])

    def _sync_timelines(self) -> None:
        for host, source in self._board.timelines.items():
            body = source.body(self._sent_until.get(host))
            times = [sample["t"] for sample in (*body["samples"], *body["rank_samples"])]
            if times or host not in self._sent_until:
                self._sent_until[host] = max(times, default=0) + 1
                body["events"] = source.body()["events"]
                self._write([TIMELINE + encode_json(body)])

    def _write(self, messages: Sequence[bytes]) -> None:
        if messages:
            self._stream.write(b"".join(message + b"\n" for message in messages))
            self._stream.flush()
