"""The portal's files, as they are served."""

from __future__ import annotations

import mimetypes
import secrets

from fastapi import APIRouter, Request, Response

from flodl.web.errors import ApiError
from flodl.web.gate import port_of
from flodl.web.page_files import PORTAL, page_files

_MARKERS = ("<!--csp-->", "<!--data-->")


def browser_cookie(port: int) -> str:
    """Return the name of the cookie that tells one browser's streams from another's."""
    return f"flodl_browser_{port}"


def page_routes() -> APIRouter:
    """Return the routes of the page and its files."""
    router = APIRouter()

    @router.get("/")
    async def portal(request: Request) -> Response:
        pages = page_files()
        if PORTAL not in pages.content:
            raise ApiError(404, "not_found", "this installation has no portal page")
        text = pages.text(PORTAL)
        for marker in _MARKERS:
            text = text.replace(marker, "")
        for attribute in ("href", "src"):
            text = text.replace(f'{attribute}="static/', f'{attribute}="static/{pages.digest}/')
        response = Response(text, media_type="text/html")
        name = browser_cookie(port_of(request.scope))
        if name not in request.cookies:
            response.set_cookie(name, secrets.token_urlsafe(9), httponly=True, samesite="strict")
        return response

    @router.get("/static/{digest}/{name}")
    async def static_file(digest: str, name: str) -> Response:
        pages = page_files()
        content = pages.content.get(name)
        if content is None or digest != pages.digest:
            raise ApiError(404, "not_found", "no such file")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        if name.endswith(".js"):
            kind = "text/javascript"
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(content, media_type=kind, headers=headers)

    return router
