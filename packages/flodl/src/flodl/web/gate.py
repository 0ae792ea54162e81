"""What every request passes first: names, methods, tokens; and the headers of every answer."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flodl.records.record import encode_json
from flodl.web.auth import Auth
from flodl.web.budget import LONGEST_WAIT_S, RequestBudget, cost_of
from flodl.web.errors import ApiError
from flodl.web.extension import NO_EXTENSION, Extension

_OPEN = frozenset({"/", "/healthz", "/login"})
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors {}"
)
_MOST_TARGET_BYTES = 4096
_PATIENCE_S = 0.25


class Gate:
    """ASGI middleware in front of the portal.

    Args:
        app: What answers the requests that pass.
        auth: Who may look.
        budget: How many requests are answered while the run goes on.
        extension: Routes that pass as they are.
    """

    def __init__(
        self,
        app: ASGIApp,
        auth: Auth,
        budget: RequestBudget,
        extension: Extension = NO_EXTENSION,
    ) -> None:
        self._app = app
        self._auth = auth
        self._budget = budget
        self._extension = extension

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        is_foreign = scope.get("path") in self._extension.paths
        if scope["type"] != "http":
            if scope["type"] == "websocket" and is_foreign:
                await self._app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message))
            await send(message)

        if not is_foreign:
            try:
                await self._wait_for_budget(scope["path"])
                self._check(scope)
            except ApiError as error:
                await _refuse(error, send_guarded)
                return
        await self._app(scope, receive, send_guarded)

    async def _wait_for_budget(self, path: str) -> None:
        wait = self._budget.reserve(cost_of(path))
        if wait is None:
            # an answer at once would only make room for the next request of a flood
            await self._pause(LONGEST_WAIT_S)
            raise ApiError(503, "busy", "too many requests; the training comes first")
        if wait:
            await self._pause(wait)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the run or the server."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0 and not self._budget.is_released:
            await asyncio.sleep(min(left, _PATIENCE_S))

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if len(scope["path"]) + len(scope["query_string"]) > _MOST_TARGET_BYTES:
            raise ApiError(
                414, "too_long", f"a request line has at most {_MOST_TARGET_BYTES} bytes"
            )
        if not self._auth.answers_to(headers.get("host", "")):
            raise ApiError(
                421,
                "foreign_host",
                "this server does not answer to that name; see allowed_hosts of serve()",
            )
        path, method = scope["path"], scope["method"]
        if method != ("POST" if path == "/login" else "GET"):
            raise ApiError(405, "bad_method", f"{path} does not take {method}")
        if not self._auth.needs_token or path in _OPEN or path.startswith("/static/"):
            return
        self._check_viewer(scope, headers)

    def _check_viewer(self, scope: Scope, headers: Headers) -> None:
        if self._auth.has_session(headers.get("cookie", ""), port_of(scope)):
            return
        authorization, is_reader = headers.get("authorization", ""), self._extension.is_reader
        if is_reader is not None and is_reader(authorization):
            return
        kind, _, token = authorization.partition(" ")
        if kind.casefold() == "bearer" and token:
            peer = peer_of(scope)
            if self._auth.is_barred(peer):
                raise ApiError(429, "too_many_failures", "too many wrong tokens; wait a minute")
            if self._auth.knows(token.strip(), peer):
                return
            raise ApiError(401, "bad_token", "the token is wrong")
        raise ApiError(401, "no_token", "this portal needs a token")

    def _add_headers(self, headers: MutableHeaders) -> None:
        origins = " ".join(sorted(self._auth.embed_origins)) or "'none'"
        headers["content-security-policy"] = _CSP.format(origins)
        headers["x-content-type-options"] = "nosniff"
        headers["referrer-policy"] = "no-referrer"
        headers.setdefault("cache-control", "no-store")


def port_of(scope: Scope) -> int:
    """Return the port that a request came in on."""
    server = scope.get("server")
    return int(server[1]) if server and server[1] else 0


def peer_of(scope: Scope) -> str:
    """Return the address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


async def _refuse(error: ApiError, send: Send) -> None:
    body = encode_json(error.body())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # an unread body would be taken for the next request
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
