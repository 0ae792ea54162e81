"""The record tree over HTTP: paths, one node with its children, history, series, downloads."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from flodl.records.record import encode_json
from flodl.records.tree import RecordTree
from flodl.web.answers import MOST_POINTS, node_json, series_csv, series_json
from flodl.web.errors import ApiError
from flodl.web.query import choice_of, count_of, optional_path, path_of

DEFAULT_ROWS = 512
MOST_ROWS = 8192
_MOST_CHILDREN = 4096


def json_response(body: bytes, *, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of ready JSON."""
    return Response(body, media_type="application/json", headers=headers)


def record_routes(tree: RecordTree) -> APIRouter:
    """Return the routes that read the tree."""
    router = APIRouter()

    @router.get("/paths")
    async def paths(request: Request) -> Response:
        return json_response(encode_json(tree.paths(path_of(request.query_params, "prefix"))))

    @router.get("/node")
    async def node(request: Request) -> Response:
        query = request.query_params
        view = tree.node(
            path_of(query),
            limit=count_of(query, "limit", most=_MOST_CHILDREN),
            offset=count_of(query, "offset") or 0,
            sort=query.get("sort"),
            descending=choice_of(query, "order", ("asc", "desc")) == "desc",
            containing=query.get("filter", ""),
        )
        return json_response(node_json(view))

    @router.get("/history")
    async def history(request: Request) -> Response:
        query = request.query_params
        wanted = count_of(query, "n", most=MOST_ROWS)
        past = tree.history(
            path_of(query),
            n=DEFAULT_ROWS if wanted is None else wanted,
            since=count_of(query, "since"),
            alerts=optional_path(query, "alerts"),
        )
        headers = {"x-flodl-gap": "1"} if past.has_gap else None
        lines = b",".join(record.line for record in past.records)
        return json_response(b"[%b]" % lines, headers=headers)

    @router.get("/series")
    async def series(request: Request) -> Response:
        query = request.query_params
        keys = query.get("keys")
        points = count_of(query, "points", most=MOST_POINTS, least=1)
        return json_response(
            series_json(
                tree,
                path_of(query),
                keys=keys.split(",") if keys else None,
                points=MOST_POINTS if points is None else points,
                start=count_of(query, "from"),
                end=count_of(query, "to"),
            )
        )

    @router.get("/export.csv")
    async def export_csv(request: Request) -> Response:
        path = path_of(request.query_params)
        text = series_csv(tree, path)
        if text is None:
            raise ApiError(404, "not_found", f"no records of {path}")
        return Response(text, media_type="text/csv", headers=_download(path, "csv"))

    @router.get("/export.jsonl")
    async def export_jsonl(request: Request) -> Response:
        path = path_of(request.query_params)
        lines = [record.line + b"\n" for record in tree.recent_rows(path, MOST_ROWS)]
        if not lines:
            raise ApiError(404, "not_found", f"no records of {path}")
        kind = "application/x-ndjson"
        return Response(b"".join(lines), media_type=kind, headers=_download(path, "jsonl"))

    return router


def _download(path: str, suffix: str) -> dict[str, str]:
    name = f"{path.replace('/', '-')}.{suffix}"
    return {"content-disposition": f'attachment; filename="{name}"'}
