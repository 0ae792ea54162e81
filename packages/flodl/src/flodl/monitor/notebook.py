"""A run in a notebook: the portal in a frame while it is served, else a picture and a table."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from html import escape

from flodl.core.units import format_eta, format_metric
from flodl.monitor.errors import MissingExtraError
from flodl.monitor.history import EpochRecord

_WIDTH, _HEIGHT, _EDGE = 640, 200, 28
_COLORS = ("#2f81f7", "#d29922", "#2da44e", "#cf222e", "#8250df", "#57606a")
_ROWS = 10


def frame_html(url: str) -> str:
    """Return a frame with the portal."""
    return f'<iframe src="{escape(url)}" width="100%" height="720" style="border:0"></iframe>'


def history_html(history: Sequence[EpochRecord]) -> str:
    """Return a chart of the metrics over the epochs and a table of the newest, without scripts."""
    if not history:
        return "<p>no epochs yet</p>"
    names = list(dict.fromkeys(name for record in history for name in record.metrics))
    return f"<div>{_chart(history, names[: len(_COLORS)])}{_table(history, names)}</div>"


def show_html(html: str) -> None:
    """Display HTML in the notebook.

    Raises:
        MissingExtraError: This is no notebook: IPython is not installed.
    """
    try:
        display = importlib.import_module("IPython.display")
    except ImportError as error:
        raise MissingExtraError("display()", extra="notebook") from error
    display.display({"text/html": html, "text/plain": "flodl run"}, raw=True)


def _chart(history: Sequence[EpochRecord], names: Sequence[str]) -> str:
    curves, legend = [], []
    for number, name in enumerate(names):
        color = _COLORS[number]
        curves.append(f'<path d="{_curve(history, name)}" fill="none" stroke="{color}"/>')
        legend.append(
            f'<text x="{_EDGE + 100 * number}" y="16" fill="{color}" font-size="12">'
            f"{escape(name)}</text>"
        )
    title = f"<title>{escape(', '.join(names))} over {len(history)} epochs</title>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" role="img">{title}{"".join(legend)}{"".join(curves)}</svg>'
    )


def _curve(history: Sequence[EpochRecord], name: str) -> str:
    """Return one metric's path, each on its own range; it breaks where there is no value."""
    values = [record.metrics.get(name, math.nan) for record in history]
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    right = max(1, len(values) - 1)
    path, is_drawing = [], False
    for number, value in enumerate(values):
        if not math.isfinite(value):
            is_drawing = False
            continue
        x = _EDGE + (_WIDTH - 2 * _EDGE) * number / right
        y = _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * (value - low) / span
        path.append(f"{'L' if is_drawing else 'M'}{x:.1f} {y:.1f}")
        is_drawing = True
    return "".join(path)


def _table(history: Sequence[EpochRecord], names: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("epoch", *names, "duration"))
    rows = []
    for record in history[-_ROWS:]:
        cells = [str(record.epoch + 1)]
        cells += [
            format_metric(record.metrics[name]) if name in record.metrics else "" for name in names
        ]
        cells.append(format_eta(record.duration_secs))
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
