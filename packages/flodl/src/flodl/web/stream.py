"""Server-sent events: what has been, then what comes, on one connection."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from flodl.records.record import encode_json
from flodl.web.auth import cookie_value
from flodl.web.brief import MOST_DIGITS, brief_line
from flodl.web.gate import port_of
from flodl.web.hub import Client, Hub, View, frame
from flodl.web.pages import browser_cookie
from flodl.web.query import count_of, flag_of, optional_path, path_of, whole_number

RETRY = b"retry: 2000\n\n"
BACKLOG = 512
_RESUME = 8192


class EventStream(Response):
    """A response that goes on until its viewer leaves or the hub ends it."""

    def __init__(self, hub: Hub, client: Client, preamble: bytes) -> None:
        super().__init__(media_type="text/event-stream")
        self._hub = hub
        self._client = client
        self._preamble = preamble

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI)
        """Send the preamble, then whatever the hub has, until the end."""
        client = self._client
        client.task = asyncio.current_task()
        leaving = asyncio.ensure_future(_until_left(client, receive))
        try:
            headers = [
                (name, value) for name, value in self.raw_headers if name != b"content-length"
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            chunk: bytes | None = self._preamble
            while chunk is not None:
                client.sending_since = asyncio.get_running_loop().time()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                client.sending_since = None
                chunk = await client.next_chunk()
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self._hub.dismiss(client)


async def _until_left(client: Client, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.end()
    if client.task is not None and client.sending_since is not None:
        client.task.cancel()


def stream_routes(hub: Hub) -> APIRouter:
    """Return the routes ``/stream`` and ``/events``."""
    router = APIRouter()

    @router.get("/stream")
    async def stream(request: Request) -> Response:
        query = request.query_params
        view = View(
            scope=path_of(query),
            alerts=optional_path(query, "alerts"),
            first=count_of(query, "offset") or 0,
            most=count_of(query, "limit"),
            has_clock=flag_of(query, "clock"),
            digits=count_of(query, "digits", least=1, most=MOST_DIGITS),
        )
        since = _resume_point(request)
        client = Client(view, _browser(request))
        if not hub.admit(client):
            return Response(status_code=204)
        return EventStream(hub, client, _preamble(hub, client, view, since))

    @router.get("/events")
    async def events(request: Request) -> Response:
        since = _resume_point(request) or 0
        client = Client(None, _browser(request))
        if not hub.admit(client):
            return Response(status_code=204)
        past = hub.board.epochs()
        client.last_seq = len(past)
        parts = [RETRY]
        parts += [
            frame("epoch", line, number)
            for number, line in enumerate(past, start=1)
            if number > since
        ]
        parts += _completion(hub, client)
        return EventStream(hub, client, b"".join(parts))

    return router


def _preamble(hub: Hub, client: Client, view: View, since: int | None) -> bytes:
    """Return what a new stream is told first; the client is registered, so nothing slips by."""
    tree, board = hub.board.tree, hub.board
    past = tree.history(
        view.scope,
        n=BACKLOG if since is None else _RESUME,
        since=since,
        alerts=view.alerts,
        children=view.children,
    )
    records = past.records
    if past.has_gap or len(records) == _RESUME:
        client.last_seq = 1 << 62
        client.end()
        return RETRY + frame("resync", b"{}")
    newest = tree.seq
    # a stream that breaks off in here must not resume beyond the backlog it did not get
    base = since if since is not None else (records[0].seq - 1 if records else newest)
    hello = {"run": tree.run, "seq": newest, "status": board.status}
    parts = [RETRY, frame("hello", encode_json(hello), base)]
    meta = tree.meta
    if meta is not None:
        parts.append(frame("record", meta.line, base))
    parts += [
        frame("record", brief_line(record, view.scope, view.digits), record.seq)
        for record in records
        if meta is None or record.seq != meta.seq
    ]
    client.last_seq = records[-1].seq if records else (since or 0)
    if view.has_clock:
        parts.append(frame("clock", encode_json(board.clock_face()), client.last_seq))
    parts += _completion(hub, client)
    return b"".join(parts)


def _completion(hub: Hub, client: Client) -> list[bytes]:
    board = hub.board
    if board.status in {"waiting", "running"}:
        return []
    client.knows_the_end = True
    return [frame("complete", encode_json(board.completion()), client.last_seq)]


def _resume_point(request: Request) -> int | None:
    header = request.headers.get("last-event-id")
    if header is None:
        return count_of(request.query_params, "since")
    return whole_number("Last-Event-ID", header)


def _browser(request: Request) -> str | None:
    name = browser_cookie(port_of(request.scope))
    return cookie_value(request.headers.get("cookie", ""), name)
