"""A scene as SVG text, laid out here: no other program is needed."""

from __future__ import annotations

import html
from itertools import pairwise
from typing import TYPE_CHECKING

from flodl.graph.viz import shapes
from flodl.graph.viz.labels import label_places
from flodl.graph.viz.layout import lay_out
from flodl.graph.viz.text import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flodl.graph.profiling import Profile
    from flodl.graph.viz.boxes import Box, Layout, Point, Route
    from flodl.graph.viz.scene import Item, Link, Scene

_MARGIN, _TITLE = 24.0, 30.0
_COLORS = {"stream": "#2c3e50", "reference": "#2980b9", "state": "#e67e22"}
_DASHES = {"stream": "", "reference": ' stroke-dasharray="6 4"', "state": ' stroke-dasharray="2 4"'}
_HALO = 'paint-order="stroke" stroke="#ffffff" stroke-width="3"'


def svg_text(
    scene: Scene,
    title: str,
    *,
    fills: Mapping[str, str] | None = None,
    profile: Profile | None = None,
) -> str:
    """Return a picture of a scene; the same scene gives the same text.

    Args:
        scene: What to show.
        title: Caption.
        fills: Other fills by node, for a profile.
        profile: Times to write on nodes, and of levels beside them.
    """
    layout = lay_out(scene, extra=0 if profile is None else 1)
    side = 0.0 if profile is None else 150.0
    width = max(layout.width, len(title) * 8.0 + 20) + 2 * _MARGIN + side
    height = layout.height + 2 * _MARGIN + _TITLE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f"<title>{_escaped(title)}</title>",
        "<defs>",
        *[_marker(kind, color) for kind, color in _COLORS.items()],
        "</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_MARGIN:.0f}" y="{_MARGIN + 6:.0f}" font-size="14" font-weight="bold" '
        f'fill="#2c3e50">{_escaped(title)}</text>',
        f'<g transform="translate({_MARGIN + side:.1f} {_MARGIN + _TITLE:.1f})">',
        *[_frame(layout.boxes[group.id]) for group in scene.groups],
        *map(_arrow, layout.routes),
        *map(_loop, layout.loops),
        *[_heading(layout.boxes[group.id], group.title) for group in scene.groups],
    ]
    times = {} if profile is None else {node.id: node.seconds for node in profile.nodes}
    for item in scene.items:
        seconds = times.get(item.node)
        fill = (fills or {}).get(item.node, item.fill)
        parts.append(_item(item, layout.boxes[item.id], fill, seconds))
    parts += [_label(route.link, place) for route, place in label_places(scene, layout)]
    if profile is not None:
        parts += _levels(scene, layout, profile, side)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _marker(kind: str, color: str) -> str:
    return (
        f'<marker id="arrow-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 1 L10 5 L0 9 Z" fill="{color}"/></marker>'
    )


def _frame(box: Box) -> str:
    return (
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="10" fill="#f8f9f9" stroke="#aab7b8"/>'
    )


def _heading(box: Box, title: str) -> str:
    return (
        f'<text x="{box.left + 12:.1f}" y="{box.top + 18:.1f}" font-size="11" fill="#566573" '
        f'paint-order="stroke" stroke="#f8f9f9" stroke-width="4">{_escaped(title)}</text>'
    )


def _arrow(route: Route) -> str:
    kind = route.link.kind
    head = f' marker-end="url(#arrow-{kind})"' if route.has_head else ""
    return (
        f'<path d="{_curve(route.points)}" fill="none" stroke="{_COLORS[kind]}" '
        f'stroke-width="1.3"{_DASHES[kind]}{head}/>'
    )


def _curve(points: list[tuple[float, float]]) -> str:
    """Return a path through points, vertical at each, so that parts join smoothly."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for new_x, new_y in rest:
        bend = (new_y - y) / 2
        if abs(new_x - x) < 0.5:
            path.append(f"L{new_x:.1f} {new_y:.1f}")
        else:
            path.append(
                f"C{x:.1f} {y + bend:.1f} {new_x:.1f} {new_y - bend:.1f} {new_x:.1f} {new_y:.1f}"
            )
        x, y = new_x, new_y
    return " ".join(path)


def _label(link: Link, place: Point) -> str:
    return (
        f'<text x="{place[0]:.1f}" y="{place[1] + 3:.1f}" font-size="10" text-anchor="middle" '
        f'fill="{_COLORS[link.kind]}" {_HALO}>{_escaped(link.label)}</text>'
    )


def _loop(route: Route) -> str:
    """Return an arrow of state: straight lines with round corners, named beside its trunk."""
    points = route.points
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for (x1, y1), (x2, y2), (x3, y3) in zip(points, rest, rest[1:], strict=False):
        bend = min(10.0, (abs(x2 - x1) + abs(y2 - y1)) / 2, (abs(x3 - x2) + abs(y3 - y2)) / 2)
        before = (x2 - _sign(x2 - x1) * bend, y2 - _sign(y2 - y1) * bend)
        after = (x2 + _sign(x3 - x2) * bend, y2 + _sign(y3 - y2) * bend)
        path.append(f"L{before[0]:.1f} {before[1]:.1f}")
        path.append(f"Q{x2:.1f} {y2:.1f} {after[0]:.1f} {after[1]:.1f}")
    path.append(f"L{points[-1][0]:.1f} {points[-1][1]:.1f}")
    top, bottom = next(
        pair for pair in pairwise(points) if pair[0][0] == pair[1][0] and pair[0] not in points[:1]
    )
    is_left = top[0] < points[0][0]
    return (
        f'<path d="{" ".join(path)}" fill="none" stroke="{_COLORS["state"]}" stroke-width="1.5"'
        f'{_DASHES["state"]} marker-end="url(#arrow-state)"/>'
        f'<text x="{top[0] + (-5 if is_left else 5):.1f}" y="{(top[1] + bottom[1]) / 2 + 4:.1f}" '
        f'font-size="10" text-anchor="{"end" if is_left else "start"}" fill="{_COLORS["state"]}" '
        f"{_HALO}>{_escaped(route.link.label)}</text>"
    )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _item(item: Item, box: Box, fill: str, seconds: float | None) -> str:
    texts = [item.title, *item.lines]
    if seconds is not None:
        texts.append(time_text(seconds))
    dash = ' stroke-dasharray="5 3"' if item.frozen else ""
    style = f'fill="{fill}" stroke="#7f8c8d"{dash}'
    outline, middle = shapes.outline(item.shape, box, len(texts) - 1, style)
    rows = []
    for index, text in enumerate(texts):
        y = middle + 4 + 15 * (index if item.shape == "circle" else index - (len(texts) - 1) / 2)
        if item.shape == "circle" and index:
            y += 10
        # On the strong colors of a profile gray could not be read.
        ink = "#566573" if seconds is None else "#17202a"
        weight = ' font-weight="bold"' if index == 0 else f' font-size="11" fill="{ink}"'
        rows.append(
            f'<text x="{box.x:.1f}" y="{y:.1f}" text-anchor="middle"{weight}>'
            f"{_escaped(text)}</text>"
        )
    tip = f"<title>{_escaped(', '.join(texts))}</title>"
    return f'<g data-node="{_escaped(item.id)}">{tip}{outline}{"".join(rows)}</g>'


def _levels(scene: Scene, layout: Layout, profile: Profile, side: float) -> list[str]:
    parts: list[str] = []
    taken: set[float] = set()
    for level in profile.levels:
        tops = [
            layout.boxes[item.id].y
            for item in scene.items
            if item.level == level.index and item.node and not item.group
        ]
        if not tops:
            continue
        y = min(tops)
        while y in taken:
            y += 15  # several levels of the graph may share a layer of the picture
        taken.add(y)
        text = f"level {level.index}: {time_text(level.wall)}"
        if level.num_nodes > 1:
            text += f" \u00d7{level.parallelism:.1f}"
        parts.append(
            f'<text x="{-side:.1f}" y="{y + 4:.1f}" font-size="11" fill="#566573">'
            f"{_escaped(text)}</text>"
        )
    return parts


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
