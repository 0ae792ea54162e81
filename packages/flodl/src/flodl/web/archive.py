"""The whole run as one object, and as one file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import logging
import re
import time
from typing import Literal

from flodl.core.log import warn_once
from flodl.records.board import RunBoard
from flodl.records.record import encode_json
from flodl.web.answers import series_json
from flodl.web.page_files import PORTAL, PageFiles, page_files
from flodl.web.svg import safe_svg

Theme = Literal["auto", "light", "dark"]

MAX_BYTES = 32 << 20
_PACK_BEYOND = 1 << 20
_MOST_POINTS = 1024
_FEWEST_POINTS = 16
_MOST_ROWS_ALL = 20_000
# four columns of about this many characters per value
_BYTES_PER_POINT = 4 * 12
_RAW_BUDGET = 48 << 20

_logger = logging.getLogger(__name__)

_STYLE = re.compile(r'<link rel="stylesheet" href="static/([\w.-]+)"\s*/?>')
_PLAIN_SCRIPT = re.compile(r'<script src="static/([\w.-]+)"></script>')
_MODULE = re.compile(r'<script type="module" src="static/([\w.-]+)"></script>')
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.-]+)";\n', re.M)
_EXPORT = re.compile(r"^export ", re.M)


def snapshot(board: RunBoard, *, points: int | None = None, rows: int | None = None) -> bytes:
    """Return everything there is to see as one JSON object.

    Args:
        board: The run.
        points: Points per series at most; ``None`` for what keeps the object in reasonable size.
        rows: Newest records per node at most; ``None`` likewise.
    """
    tree = board.tree
    paths = tree.paths()
    chosen = _fitting_points(board) if points is None else points
    rows = _fitting_rows(board) if rows is None else rows
    nodes = b",".join(_node_part(board, path, chosen, rows) for path in paths)
    meta = tree.meta
    hosts = list(board.timelines)
    timelines = {host: source.body() for host, source in board.timelines.items()}
    heatmaps = [{"model": h.model, "svg": safe_svg(h.svg)} for h in board.heatmaps]
    fields: dict[str, bytes] = {
        "v": b"1",
        "status": encode_json("running" if board.status == "waiting" else board.status),
        "seconds": encode_json(round(board.seconds, 3)),
        "saved_ts": encode_json(int(time.time() * 1000)),
        "resolution": encode_json(_resolution(board, chosen)),
        "run": encode_json(tree.run),
        "meta": b"null" if meta is None else meta.line,
        "api_meta": encode_json(board.api_meta()),
        "epochs": b"[%b]" % b",".join(board.epochs()),
        "alerts": encode_json(tree.alerts()),
        "nodes": b"{%b}" % nodes,
        "graph_svg": encode_json(None if board.svg is None else safe_svg(board.svg)),
        "heatmaps": encode_json(heatmaps),
        "timeline": encode_json(timelines),
        "timeline_hosts": encode_json({"controller": hosts[0] if hosts else None, "hosts": hosts}),
    }
    return b"{%b}" % b",".join(b'"%b":%b' % (k.encode(), v) for k, v in fields.items())


def portal_file(board: RunBoard, *, theme: Theme = "auto", max_bytes: int = MAX_BYTES) -> bytes:
    """Return the portal with the whole run in it, as one offline HTML file.

    A run that does not fit keeps its start and its end, at half the resolution as often as it
    takes.

    Args:
        board: The run.
        theme: Look that is pinned, or ``"auto"``.
        max_bytes: Size of the file at most.
    """
    points, rows = _fitting_points(board), _fitting_rows(board)
    while True:
        page = page_with_data(PORTAL, snapshot(board, points=points, rows=rows), theme=theme)
        if len(page) <= max_bytes:
            return page
        if points <= _FEWEST_POINTS:
            warn_once(
                _logger,
                "the saved page has %d bytes, more than the %d allowed, at its coarsest",
                len(page),
                max_bytes,
            )
            return page
        points, rows = points // 2, rows // 2


def page_with_data(name: str, data: bytes, *, theme: Theme = "auto") -> bytes:
    """Return one of our pages with its files and some JSON in it, able to reach nothing else.

    Args:
        name: File name of the page.
        data: The JSON it shows.
        theme: Look that is pinned, or ``"auto"``.
    """
    pages = page_files()
    styles: list[str] = []
    scripts: list[str] = []
    text = pages.text(name)
    text = _STYLE.sub(lambda m: _inline(styles, "style", pages.text(m[1])), text)
    text = _PLAIN_SCRIPT.sub(lambda m: _inline(scripts, "script", pages.text(m[1])), text)
    text = _MODULE.sub(
        lambda m: _inline(scripts, "script", _bundle(pages, m[1]), ' type="module"'), text
    )
    styled = " ".join(map(_hash, styles)) or "'none'"
    scripted = " ".join(map(_hash, scripts)) or "'none'"
    csp = f"default-src 'none'; script-src {scripted}; style-src {styled}; img-src data: blob:"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{csp}">'
    text = text.replace("<!--csp-->", meta).replace("<!--data-->", _data_block(data))
    if theme != "auto":
        text = text.replace('<html lang="en"', f'<html lang="en" data-pin="{theme}"', 1)
    return text.encode()


def _node_part(board: RunBoard, path: str, points: int, rows: int) -> bytes:
    tree = board.tree
    own = tree.node(path, limit=0).node
    recent = b",".join(record.line for record in tree.recent_rows(path, rows))
    return b'%b:{"node":%b,"rows":[%b],"series":%b}' % (
        encode_json(path),
        b"null" if own is None else own,
        recent,
        series_json(tree, path, points=points),
    )


def _fitting_rows(board: RunBoard) -> int:
    return max(20, min(512, _MOST_ROWS_ALL // len(board.tree.paths())))


def _fitting_points(board: RunBoard) -> int:
    widths = [
        len(part.keys) for path in board.tree.paths() if (part := board.tree.series(path, points=1))
    ]
    per_point = max(1, sum(widths)) * _BYTES_PER_POINT
    points = _MOST_POINTS
    while points > _FEWEST_POINTS and points * per_point > _RAW_BUDGET:
        points //= 2
    return points


def _resolution(board: RunBoard, points: int) -> str:
    longest = max(
        (len(part.t) for path in board.tree.paths() if (part := board.tree.series(path, keys=[]))),
        default=0,
    )
    factor = -(-longest // points)
    return "every point" if factor <= 1 else f"1 of {factor} points"


def _bundle(pages: PageFiles, entry: str) -> str:
    """Return a module and all it imports as one module text, imports first."""
    done: list[str] = []
    parts: list[str] = []

    def add(name: str) -> None:
        if name in done:
            return
        done.append(name)
        text = pages.text(name)
        for imported in _IMPORT.findall(text):
            add(imported)
        parts.append(_EXPORT.sub("", _IMPORT.sub("", text)))

    add(entry)
    return "\n".join(parts)


def _inline(kept: list[str], tag: str, text: str, attributes: str = "") -> str:
    kept.append(text)
    return f"<{tag}{attributes}>{text}</{tag}>"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data_block(data: bytes) -> str:
    if len(data) > _PACK_BEYOND:
        packed = base64.b64encode(gzip.compress(data, 6)).decode()
        return (
            '<script type="application/json" id="flodl-data" data-encoding="gzip">'
            f"{packed}</script>"
        )
    text = data.decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="flodl-data">{text}</script>'
