"""One uvicorn on one port, in a thread that ends when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from flodl.web.budget import MOST_CONNECTIONS
from flodl.web.connections import protocol_charging
from flodl.web.errors import DashboardBindError
from flodl.web.extension import NO_EXTENSION, Extension
from flodl.web.hub import Hub

_START_S = 10.0
_STOP_S = 4.0
_GRACE_S = 2
_BACKLOG = 128
_SWEEP_S = 5.0
_SILENCE_S = 30.0
_REQUEST_LINE_BYTES = 8192


class PortalServer:
    """Serves an application until :meth:`stop`, beside whatever else the process does.

    Args:
        app: What to serve.
        hub: Streams to end before the server stops.
        listener: Where it listens, from :func:`bound_socket`; the server closes it.
        extension: Routes beside the portal's, and what they need of the server.
    """

    def __init__(
        self,
        app: ASGIApp,
        hub: Hub,
        listener: socket.socket,
        extension: Extension = NO_EXTENSION,
    ) -> None:
        self._hub = hub
        self._extension = extension
        self._socket = _Listener(fileno=listener.detach())
        self._socket.has_no_room = self._has_no_room
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="websockets-sansio" if extension.websocket_bytes else "none",
            ws_max_size=extension.websocket_bytes,
            ws_per_message_deflate=False,
            ssl_certfile=extension.certificate,
            ssl_keyfile=extension.certificate_key,
            http=protocol_charging(hub.budget),
            loop="asyncio",
            server_header=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=_REQUEST_LINE_BYTES,
        )
        self._server = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flodl-portal", daemon=True)
        self._stopped = False

    def start(self) -> None:
        """Begin to serve; returns once requests are answered."""
        self._thread.start()
        self._ready.wait(_START_S)

    def stop(self) -> None:
        """End all streams, then the server; the port is free afterwards. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended on its own
                self._loop.call_soon_threadsafe(self._begin_end)
            self._thread.join(_STOP_S)
        self._socket.close()

    def _has_no_room(self) -> bool:
        viewers = sum(map(_is_viewer, self._server.server_state.connections))
        # a flood of viewers must not keep out those whom the extension's routes are for
        is_flooded = self._hub.budget.is_exhausted and not self._extension.paths
        return viewers >= MOST_CONNECTIONS or is_flooded

    async def _sweep(self) -> None:
        """Close connections that ask for nothing: each of them is one less for a viewer."""
        silent_since: dict[Any, float] = {}
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self._loop.time()
            connections = set(filter(_is_viewer, self._server.server_state.connections))
            silent_since = {c: t for c, t in silent_since.items() if c in connections}
            for connection in connections:
                is_busy = getattr(connection, "cycle", None) is not None
                if is_busy:
                    silent_since.pop(connection, None)
                elif now - silent_since.setdefault(connection, now) > _SILENCE_S:
                    connection.transport.close()

    def _begin_end(self) -> None:
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        await self._hub.close()
        self._server.should_exit = True

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._pass_over_pauses)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._ready.set()

    def _pass_over_pauses(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        is_pause = isinstance(error, OSError) and error.errno == errno.ENOBUFS
        # the end of a pause may come after that of the socket
        is_late = isinstance(error, ValueError) and self._socket.fileno() < 0
        if not is_pause and not is_late:
            loop.default_exception_handler(context)

    async def _serve(self) -> None:
        self._loop.call_soon(self._hub.start)
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.01)
        self._ready.set()
        sweeping = self._loop.create_task(self._sweep())
        await serving
        sweeping.cancel()


def _is_viewer(connection: Any) -> bool:
    """Return whether a connection is for requests: a websocket has no request of its own."""
    return hasattr(connection, "cycle")


class _Listener(socket.socket):
    """A listening socket that takes no connection while there is no room for it."""

    has_no_room: Callable[[], bool]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.has_no_room():
            # the loop answers this error with a second's pause; the kernel keeps who waits
            raise OSError(errno.ENOBUFS, "no room for more connections")
        return super().accept()


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free one.

    Raises:
        DashboardBindError: Nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DashboardBindError(
            f"the portal cannot listen on {host}:{port}: {reason}",
            hint="choose another port, or 0 to take any free one",
        ) from error
    return listener
