"""The control port with nothing beside it but the run's own pages."""

from __future__ import annotations

import socket
from collections.abc import Callable

from flodl.distributed.serving.contract import Door
from flodl.records.board import RunBoard
from flodl.web.app import create_app
from flodl.web.auth import Auth
from flodl.web.extension import Extension
from flodl.web.hub import Hub
from flodl.web.server import PortalServer


def plain_door(
    listener: socket.socket, board: RunBoard | None = None
) -> Callable[[Extension], Door]:
    """Return what opens the port with nothing but the control routes and the run's own pages.

    Args:
        listener: Where to listen; the server closes it.
        board: The run that the pages show.
    """

    def open_door(extension: Extension) -> Door:
        shown = RunBoard() if board is None else board
        host = str(listener.getsockname()[0])
        hub = Hub(shown)
        app = create_app(shown, auth=Auth(host=host), hub=hub, extension=extension)
        server = PortalServer(app, hub, listener, extension)
        server.start()
        return server

    return open_door
