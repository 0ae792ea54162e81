"""The portal as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from flodl.records.board import RunBoard
from flodl.records.record import encode_json
from flodl.web.auth import Auth
from flodl.web.errors import ApiError
from flodl.web.extension import NO_EXTENSION, Extension
from flodl.web.gate import Gate
from flodl.web.hub import Hub
from flodl.web.pages import page_routes
from flodl.web.prometheus import prometheus_routes
from flodl.web.records_api import record_routes
from flodl.web.run_api import login_routes, run_routes
from flodl.web.stream import stream_routes


def create_app(
    board: RunBoard,
    *,
    auth: Auth,
    hub: Hub | None = None,
    extension: Extension = NO_EXTENSION,
) -> ASGIApp:
    """Return the application that shows one run.

    Args:
        board: The run.
        auth: Who may look.
        hub: What feeds the streams; ``None`` makes one. Whoever stops the server closes it.
        extension: More routes on the same port.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    hub = Hub(board) if hub is None else hub
    for router in (
        page_routes(),
        login_routes(auth),
        record_routes(board.tree),
        run_routes(hub),
        prometheus_routes(board),
        stream_routes(hub),
        *extension.routers,
    ):
        app.include_router(router)
    return Gate(app, auth, hub.budget, extension)


async def _answer_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    body = encode_json(error.body())
    return Response(body, status_code=error.status, media_type="application/json")


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "not_found" if error.status_code == 404 else "refused"
    return await _answer_api_error(request, ApiError(error.status_code, code, str(error.detail)))
