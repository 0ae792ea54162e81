"""The control port's own routes: websockets of daemons and launcher, state, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from fastapi import APIRouter, Request, Response, WebSocket, WebSocketDisconnect

from flodl.core.log import warn_once
from flodl.distributed.cluster.door import (
    CONTROL_PATH,
    HOST_HEADER,
    INSTANCE_HEADER,
    LAUNCHER_PATH,
    SEEN_HEADER,
)
from flodl.distributed.protocol import FrameError, ResendGapError
from flodl.distributed.serving.desk import LauncherDesk
from flodl.distributed.serving.doorkeeper import Doorkeeper, Verdict
from flodl.distributed.serving.switchboard import Switchboard
from flodl.records.record import encode_json
from flodl.web.auth import is_loopback

PATHS = frozenset({CONTROL_PATH, LAUNCHER_PATH, "/state.json", "/start", "/stop"})
_START_HEADER = "x-flodl"
_GONE_CODE = 1012
"""Close code after which a daemon dials again as a new one."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Director:
    """What the routes ask of the run behind them; every call returns at once."""

    state: Callable[[], dict[str, Any]]
    """Content of ``/state.json``."""
    start: Callable[[], tuple[bool, str]]
    """Begin a run that waits for a word; whether it does, and why not."""
    stop: Callable[[], None]


def control_routes(
    *,
    instance: str,
    bound_to: str,
    is_encrypted: bool,
    doorkeeper: Doorkeeper,
    switchboard: Switchboard,
    desk: LauncherDesk,
    director: Director,
) -> APIRouter:
    """Return the routes.

    Args:
        instance: Names this process, so that peers start numbering afresh with another one.
        bound_to: Address that the server listens on.
        is_encrypted: Whether it speaks TLS.
        doorkeeper: Who may pass.
        switchboard: Takes the daemons.
        desk: Takes the launcher.
        director: Takes what people ask.
    """
    router = APIRouter()
    told = [(INSTANCE_HEADER.encode(), instance.encode())]

    @router.websocket(CONTROL_PATH)
    async def control(websocket: WebSocket) -> None:
        if not await _admit(websocket, doorkeeper):
            return
        host, peer = websocket.headers.get(HOST_HEADER), websocket.headers.get(INSTANCE_HEADER)
        if not host or not peer:
            await _deny(websocket, 400)
            return
        if not is_encrypted:
            _warn_if_public(websocket)
        await websocket.accept(headers=told)
        session = switchboard.session(host, peer)
        connection = session.open()
        reading = asyncio.create_task(_read(websocket, session.receive))
        writing = asyncio.create_task(session.write(connection, websocket.send_bytes))
        code = 1000
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            code = _close_code(host, reading, writing)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
            switchboard.hang_up(session, connection)
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the other side did
                await websocket.close(code)

    @router.websocket(LAUNCHER_PATH)
    async def launcher(websocket: WebSocket) -> None:
        if not await _admit(websocket, doorkeeper):
            return
        seen = websocket.headers.get(SEEN_HEADER, "")
        is_known = websocket.headers.get(INSTANCE_HEADER) == instance and seen.isdecimal()
        await websocket.accept(headers=told)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await desk.serve(
                int(seen) if is_known else 0, websocket.receive_bytes, websocket.send_bytes
            )

    @router.get("/state.json")
    async def state(request: Request) -> Response:
        if not is_loopback(bound_to):
            verdict = _judge(request, doorkeeper)
            if verdict is not Verdict.WELCOME:
                return Response(status_code=verdict)
        return Response(encode_json(director.state()), media_type="application/json")

    @router.post("/start")
    async def start(request: Request) -> Response:
        # a foreign web page cannot send a header of its own choice
        is_local = is_loopback(_peer(request)) and request.headers.get(_START_HEADER) == "1"
        if not is_local:
            verdict = _judge(request, doorkeeper)
            if verdict is not Verdict.WELCOME:
                return Response(status_code=verdict)
        ok, reason = director.start()
        body = encode_json({"ok": ok, "reason": reason})
        return Response(body, status_code=200 if ok else 409, media_type="application/json")

    @router.post("/stop")
    async def stop(request: Request) -> Response:
        verdict = _judge(request, doorkeeper)
        if verdict is not Verdict.WELCOME:
            return Response(status_code=verdict)
        director.stop()
        return Response(encode_json({"ok": True}), media_type="application/json")

    return router


async def _read(websocket: WebSocket, receive: Callable[[bytes], None]) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes")
        if data is None:
            raise FrameError("a text frame: this side takes binary ones")
        receive(data)


def _close_code(host: str, reading: asyncio.Task[None], writing: asyncio.Task[None]) -> int:
    for task in (reading, writing):
        error = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(error, FrameError):
            _logger.warning("host %s broke the protocol: %s", host, error)
            return error.close_code
        if isinstance(error, ResendGapError):
            _logger.warning("host %s was away for too long: %s", host, error)
            return _GONE_CODE
        if error is not None and not isinstance(
            error, WebSocketDisconnect | RuntimeError | OSError
        ):
            raise error
    return 1000


async def _admit(websocket: WebSocket, doorkeeper: Doorkeeper) -> bool:
    peer = "unknown" if websocket.client is None else websocket.client.host
    verdict = doorkeeper.judge(peer, websocket.headers.get("authorization", ""))
    if verdict is not Verdict.WELCOME:
        await _deny(websocket, verdict)
        return False
    return True


def _warn_if_public(websocket: WebSocket) -> None:
    peer = "" if websocket.client is None else websocket.client.host
    try:
        is_private = ip_address(peer).is_private
    except ValueError:
        return
    if not is_private:
        warn_once(
            _logger,
            "the host at %s reaches this controller over a public address, WITHOUT ENCRYPTION: "
            "token and messages can be read on the way; set controller.tls, or use a tunnel",
            peer,
        )


async def _deny(websocket: WebSocket, status: int) -> None:
    await websocket.send_denial_response(Response(status_code=status))


def _judge(request: Request, doorkeeper: Doorkeeper) -> Verdict:
    return doorkeeper.judge(_peer(request), request.headers.get("authorization", ""))


def _peer(request: Request) -> str:
    return "unknown" if request.client is None else request.client.host
