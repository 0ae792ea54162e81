"""What is answered about the tree, as bytes; the same for the server and the saved page."""

from __future__ import annotations

import csv
import io

from flodl.records.record import encode_json
from flodl.records.tree import RecordTree
from flodl.records.view import NodeView

MOST_POINTS = 4000


def node_json(view: NodeView) -> bytes:
    """Return a node's view as JSON, around records that are JSON already."""
    return b'{"path":%b,"known":%b,"node":%b,"children":[%b],"total_children":%d,"summary":%b}' % (
        encode_json(view.path),
        b"true" if view.known else b"false",
        b"null" if view.node is None else view.node,
        b",".join(view.children),
        view.total_children,
        encode_json(view.summary),
    )


def series_json(
    tree: RecordTree,
    path: str,
    *,
    keys: list[str] | None = None,
    points: int = MOST_POINTS,
    start: float | None = None,
    end: float | None = None,
) -> bytes:
    """Return a node's history in buckets as JSON; of an unknown path an empty one."""
    part = tree.series(path, keys=keys, points=points, start=start, end=end)
    if part is None:
        return encode_json(
            {"path": path, "t": [], "epoch": [], "step": [], "keys": {}, "stride_ms": 0}
        )
    return encode_json({"path": path, **part.body()})


def series_csv(tree: RecordTree, path: str) -> str | None:
    """Return a node's whole history as CSV: one row per bucket, the mean of each key.

    ``None`` where the path is not known.
    """
    part = tree.series(path)
    if part is None:
        return None
    body = part.body()
    keys = list(body["keys"])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["ts_ms", "epoch", "step", *keys])
    columns = [body["t"], body["epoch"], body["step"]]
    columns += [body["keys"][key]["mean"] for key in keys]
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()
