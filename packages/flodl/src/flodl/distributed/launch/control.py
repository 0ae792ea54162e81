"""The launcher's connection to its controller: notes both ways, across a controller's restart."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgpack
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from flodl.distributed.cluster.door import INSTANCE_HEADER, LAUNCHER_PATH, SEEN_HEADER
from flodl.distributed.protocol.values import Plain
from flodl.distributed.serving.desk import MAX_NOTE_BYTES, Note
from flodl.distributed.worker.uplink import QUIET, Endpoint

_OPEN_S = 300.0
_FIRST_WAIT_S = 0.1
_MOST_WAIT_S = 2.0
_ONCE = frozenset({"epoch", "eval"})


class ControlLink:
    """Keeps a websocket to the controller in a thread of its own.

    Args:
        endpoint: Where the controller is.
        receive: Called in that thread with each note, in order; an epoch comes once.
    """

    def __init__(self, endpoint: Endpoint, receive: Callable[[Note], None]) -> None:
        self._endpoint = endpoint
        self._receive = receive
        self._thread = threading.Thread(target=self._run, name="flodl-control", daemon=True)
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._socket: ClientConnection | None = None
        self._closing = threading.Event()
        self._instance, self._seen = "", 0
        self._known: set[tuple[str, Plain]] = set()
        self.was_connected = threading.Event()
        """Set once there has been a connection."""

    def start(self) -> None:
        """Begin to dial."""
        self._thread.start()

    def send(self, note: Note) -> None:
        """Send a note now, or as soon as there is a connection; any thread may call it."""
        with self._lock:
            self._unsent.append(msgpack.packb(note))
        self._flush()

    def let_go(self) -> None:
        """Hang up after the note at hand, and dial no more."""
        self._closing.set()

    def close(self) -> None:
        """Close the connection and wait for the thread. Idempotent."""
        self._closing.set()
        with self._lock:
            socket = self._socket
        if socket is not None:
            socket.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_MOST_WAIT_S + 1.0)

    def _run(self) -> None:
        wait = _FIRST_WAIT_S
        while not self._closing.is_set():
            try:
                self._follow()
                wait = _FIRST_WAIT_S
            except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError):
                wait = min(2 * wait, _MOST_WAIT_S)
            finally:
                with self._lock:
                    self._socket = None
            self._closing.wait(wait)

    def _follow(self) -> None:
        headers = {
            "Authorization": f"Bearer {self._endpoint.token}",
            INSTANCE_HEADER: self._instance,
            SEEN_HEADER: str(self._seen),
        }
        with connect(
            self._endpoint.url(LAUNCHER_PATH),
            ssl=self._endpoint.tls,
            additional_headers=headers,
            max_size=MAX_NOTE_BYTES,
            logger=QUIET,
            open_timeout=_OPEN_S,
            close_timeout=1.0,
            compression=None,
            proxy=None,
        ) as socket:
            response = socket.response
            told = "" if response is None else response.headers.get(INSTANCE_HEADER, "")
            if told != self._instance:
                self._instance, self._seen = told, 0
            with self._lock:
                self._socket = socket
            self.was_connected.set()
            self._flush()
            for data in socket:
                self._take(data)
                if self._closing.is_set():
                    return

    def _take(self, data: bytes | str) -> None:
        note: dict[str, Any] = msgpack.unpackb(data) if isinstance(data, bytes) else {}
        self._seen = int(note.pop("n", self._seen))
        if note.get("op") in _ONCE:
            key = (str(note["op"]), note.get("epoch"))
            if key in self._known:
                return
            self._known.add(key)
        self._receive(note)

    def _flush(self) -> None:
        with self._lock:
            while self._socket is not None and self._unsent:
                try:
                    self._socket.send(self._unsent[0])
                except (OSError, ConnectionClosed):
                    return
                self._unsent.popleft()
