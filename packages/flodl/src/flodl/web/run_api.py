"""The run as a whole over HTTP: identity, epochs, alerts, pictures, timelines, the archive."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from flodl.records.record import encode_json
from flodl.web.archive import snapshot
from flodl.web.auth import Auth
from flodl.web.errors import ApiError
from flodl.web.gate import peer_of, port_of
from flodl.web.hub import Hub
from flodl.web.query import count_of, path_of
from flodl.web.records_api import json_response
from flodl.web.svg import safe_svg

_MOST_BODY_BYTES = 1024


def run_routes(hub: Hub) -> APIRouter:
    """Return the routes that read the hub's board."""
    router, board = APIRouter(), hub.board

    @router.get("/api/history")
    async def history() -> Response:
        return json_response(b"[%b]" % b",".join(board.epochs()))

    @router.get("/api/meta")
    async def meta() -> Response:
        return json_response(encode_json(board.api_meta()))

    @router.get("/api/alerts")
    async def alerts(request: Request) -> Response:
        return json_response(encode_json(board.tree.alerts(path_of(request.query_params))))

    @router.get("/graph.svg")
    async def graph() -> Response:
        if board.svg is None:
            raise ApiError(404, "not_found", "this run has no picture of its model")
        return _picture(board.svg)

    @router.get("/api/heatmaps")
    async def heatmaps() -> Response:
        found = [
            {"model": heatmap.model, "url": f"/api/heatmaps/{number}"}
            for number, heatmap in enumerate(board.heatmaps)
        ]
        return json_response(encode_json(found))

    @router.get("/api/heatmaps/{number}")
    async def heatmap(number: str) -> Response:
        known = board.heatmaps
        if not (number.isascii() and number.isdecimal() and int(number) < len(known)):
            raise ApiError(404, "not_found", f"this run has {len(known)} heat maps")
        return _picture(known[int(number)].svg)

    @router.get("/timeline/hosts")
    async def timeline_hosts() -> Response:
        hosts = list(board.timelines)
        return json_response(
            encode_json({"controller": hosts[0] if hosts else None, "hosts": hosts})
        )

    @router.get("/timeline")
    async def timeline(request: Request) -> Response:
        query, known = request.query_params, board.timelines
        host = query.get("host") or next(iter(known), "")
        if host not in known:
            raise ApiError(404, "not_found", "no timeline of that host; see /timeline/hosts")
        start, end = count_of(query, "from"), count_of(query, "to")
        body = await run_in_threadpool(known[host].body, start, end)
        return json_response(await run_in_threadpool(encode_json, body))

    @router.get("/snapshot")
    async def whole_run() -> Response:
        has_ended = board.status not in {"waiting", "running"}
        answer = json_response(await run_in_threadpool(snapshot, board))
        hub.snapshots_at_end += has_ended
        return answer

    @router.get("/healthz")
    async def health() -> Response:
        status = "running" if board.status == "waiting" else board.status
        return json_response(encode_json({"status": status, "seq": board.tree.seq}))

    return router


def login_routes(auth: Auth) -> APIRouter:
    """Return the route that turns a token into a session cookie."""
    router = APIRouter()

    @router.post("/login")
    async def login(request: Request) -> Response:
        token = await _sent_token(request)
        peer, port = peer_of(request.scope), port_of(request.scope)
        if auth.is_barred(peer):
            raise ApiError(429, "too_many_failures", "too many wrong tokens; wait a minute")
        if auth.needs_token and not auth.knows(token, peer):
            raise ApiError(401, "bad_token", "the token is wrong")
        response = Response(status_code=204)
        response.set_cookie(
            auth.cookie_name(port), auth.session(), path="/", httponly=True, samesite="strict"
        )
        return response

    return router


async def _sent_token(request: Request) -> str:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise ApiError(413, "too_long", f"a login has at most {_MOST_BODY_BYTES} bytes")
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "bad_body", 'send JSON: {"token": "..."}') from error
    token = sent.get("token") if isinstance(sent, dict) else None
    if not isinstance(token, str):
        raise ApiError(400, "bad_body", 'send JSON: {"token": "..."}')
    return token


def _picture(svg: str) -> Response:
    return Response(safe_svg(svg), media_type="image/svg+xml")
