"""The portal in a process of its own: it reads a run from its standard input, and loads no torch.

Started by :class:`flodl.web.mirror.BoardMirror`'s owner as ``python -m flodl.web.isolated``. Each
line is one message: a letter that says what it is, and JSON.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import IO, Any

from flodl.records.board import RunBoard
from flodl.web.app import create_app
from flodl.web.auth import Auth
from flodl.web.hub import Hub
from flodl.web.mirror import BOARD, EMBED, EPOCH, RECORD, STOP, TIMELINE
from flodl.web.server import PortalServer

_VIEWERS_S = 3.0


class CopiedTimeline:
    """A timeline that grows by the parts it is sent."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {"v": 1, "host": "", "events": []}

    def extend(self, part: dict[str, Any]) -> None:
        """Append a part."""
        self._body["host"] = part["host"]
        self._body["events"] = part["events"]
        for name in ("samples", "rank_samples"):
            self._body.setdefault(name, []).extend(part[name])

    def body(self, start_ms: float | None = None, end_ms: float | None = None) -> dict[str, Any]:
        """Return the JSON form of the part between two times."""

        def is_inside(entry: dict[str, Any]) -> bool:
            after = start_ms is None or entry["t"] >= start_ms
            return after and (end_ms is None or entry["t"] <= end_ms)

        lists = {k: list(filter(is_inside, v)) for k, v in self._body.items() if type(v) is list}
        return {**self._body, **lists}


class BoardCopy:
    """A board that follows the messages of another process.

    Args:
        auth: Whose embedding origins the messages may add to.
    """

    def __init__(self, auth: Auth) -> None:
        self.board = RunBoard()
        self.linger = 0.0
        self._auth = auth
        self._timelines: dict[str, CopiedTimeline] = {}

    def follow(self, lines: IO[bytes]) -> None:
        """Take in messages until the last one, or until the other process is gone."""
        for line in lines:
            kind, body = line[:1], json.loads(line[1:])
            if kind == STOP:
                self.linger = float(body["linger"])
                return
            self._take(kind, body)

    def _take(self, kind: bytes, body: Any) -> None:
        if kind == RECORD:
            self.board.tree.replay(body)
        elif kind == EPOCH:
            self.board.add_epoch(body)
        elif kind == BOARD:
            self.board.adopt(body)
        elif kind == EMBED:
            self._auth.embed_origins.add(str(body))
        elif kind == TIMELINE:
            host = str(body["host"])
            if host not in self._timelines:
                self._timelines[host] = CopiedTimeline()
                self.board.add_timeline(host, self._timelines[host])
            self._timelines[host].extend(body)


def main() -> None:
    """Serve until the other process says so or is gone."""
    stream = sys.stdin.buffer
    place = json.loads(stream.readline())
    auth = Auth(place["token"], host=place["host"], allowed_hosts=place["allowed_hosts"])
    copy = BoardCopy(auth)
    hub = Hub(copy.board)
    listener = socket.socket(fileno=place["fd"])
    server = PortalServer(create_app(copy.board, auth=auth, hub=hub), hub, listener)
    server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    copy.follow(stream)
    hub.wait_for_viewers(copy.linger, _VIEWERS_S)
    server.stop()


if __name__ == "__main__":
    main()
