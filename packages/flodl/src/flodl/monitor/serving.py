"""The served portal, in a thread or in a process; its libraries load when a run is first served."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
from typing import Protocol

from flodl.core.errors import ConfigError
from flodl.core.log import warn_once
from flodl.monitor.place import ServePlace, shown_host
from flodl.records.board import RunBoard
from flodl.web.app import create_app
from flodl.web.auth import Auth
from flodl.web.extension import NO_EXTENSION, Extension
from flodl.web.hub import Hub
from flodl.web.mirror import EMBED, BoardMirror
from flodl.web.server import PortalServer, bound_socket

_VIEWERS_S = 3.0
_END_S = 10.0
_logger = logging.getLogger(__name__)


class Portal(Protocol):
    """The served portal of one board."""

    place: ServePlace
    port: int
    """The port it listens on."""

    @property
    def url(self) -> str:
        """Address of the page, without the token."""

    def allow_embedding(self, origin: str) -> None:
        """Let a page of this origin show the portal in a frame."""

    def stop(self, *, linger: float = 0.0) -> None:
        """Stop serving.

        Pages that are open get a few seconds to fetch the whole run first, so that they stay
        browsable.

        Args:
            linger: Seconds to go on in any case.
        """


def open_portal(
    board: RunBoard,
    place: ServePlace,
    extension: Extension | None = None,
    listener: socket.socket | None = None,
) -> Portal:
    """Serve a board.

    Args:
        board: What is shown.
        place: Where.
        extension: More routes on its port.
        listener: A socket that listens there already; the portal closes it.

    Raises:
        ConfigError: An extension is to be served from a process of its own.
        DashboardBindError: The portal cannot listen there.
    """
    if not place.isolate:
        return ThreadPortal(board, place, extension or NO_EXTENSION, listener)
    if extension is not None:
        raise ConfigError(
            "serve(isolate=True): a portal in a process of its own has no further routes",
            hint="leave isolate out where ranks are directed from the same port",
        )
    return ProcessPortal(board, place)


class ThreadPortal:
    """The portal in a thread of this process."""

    def __init__(
        self,
        board: RunBoard,
        place: ServePlace,
        extension: Extension = NO_EXTENSION,
        listener: socket.socket | None = None,
    ) -> None:
        if listener is None:
            listener = bound_socket(place.host, place.port)
        self.place = place
        self.port: int = listener.getsockname()[1]
        self._auth = Auth(place.token, host=place.host, allowed_hosts=place.allowed_hosts)
        self._hub = Hub(board)
        app = create_app(board, auth=self._auth, hub=self._hub, extension=extension)
        self._scheme = "http" if extension.certificate is None else "https"
        self._server = PortalServer(app, self._hub, listener, extension)
        self._server.start()

    @property
    def url(self) -> str:
        """Address of the page, without the token."""
        return f"{self._scheme}://{shown_host(self.place)}:{self.port}"

    def allow_embedding(self, origin: str) -> None:
        """Let a page of this origin show the portal in a frame."""
        self._auth.embed_origins.add(origin)

    def stop(self, *, linger: float = 0.0) -> None:
        """Stop serving, as :meth:`Portal.stop` says."""
        self._hub.wait_for_viewers(linger, _VIEWERS_S)
        self._server.stop()


class ProcessPortal:
    """The portal in a process of its own, which takes no time from this one.

    It shows what the board still keeps when it is opened, and all that follows.
    """

    def __init__(self, board: RunBoard, place: ServePlace) -> None:
        self.place = place
        with bound_socket(place.host, place.port) as listener:
            self.port: int = listener.getsockname()[1]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flodl.web.isolated"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                # Ctrl-C is for the training, which ends the portal in good order
                start_new_session=True,
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            settings = {
                "fd": listener.fileno(),
                "host": place.host,
                "token": place.token,
                "allowed_hosts": place.allowed_hosts,
            }
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()
            self._process.stdout.readline()
        self._mirror = BoardMirror(board, self._process.stdin)
        self._mirror.start()

    @property
    def url(self) -> str:
        """Address of the page, without the token."""
        return f"http://{shown_host(self.place)}:{self.port}"

    def allow_embedding(self, origin: str) -> None:
        """Let a page of this origin show the portal in a frame."""
        self._mirror.send(EMBED, origin)

    def stop(self, *, linger: float = 0.0) -> None:
        """Stop serving, as :meth:`Portal.stop` says."""
        self._mirror.end(linger=linger)
        try:
            self._process.wait(linger + _END_S)
        except subprocess.TimeoutExpired:
            warn_once(_logger, "the portal's process did not end in time and was killed")
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # it may have gone before it had read everything
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
