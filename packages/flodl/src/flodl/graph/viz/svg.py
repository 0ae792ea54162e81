"""A scene as SVG text, laid out here: no other program is needed."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from flodl.graph.viz import shapes
from flodl.graph.viz.layout import Box, Layout, lay_out
from flodl.graph.viz.text import time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flodl.graph.profiling import Profile
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
    loops = _loop_room(layout)
    width = max(layout.width + loops, len(title) * 8.0 + 20) + 2 * _MARGIN + side
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
        *[_frame(layout.boxes[group.id], group.title) for group in scene.groups],
        *[_arrow(link, points) for link, points in layout.routes],
        *_loops(layout),
    ]
    times = {} if profile is None else {node.id: node.seconds for node in profile.nodes}
    for item in scene.items:
        seconds = times.get(item.node)
        fill = (fills or {}).get(item.node, item.fill)
        parts.append(_item(item, layout.boxes[item.id], fill, seconds))
    parts += [_label(link, points) for link, points in layout.routes if link.label]
    if profile is not None:
        parts += _levels(scene, layout, profile, side)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _marker(kind: str, color: str) -> str:
    return (
        f'<marker id="arrow-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 1 L10 5 L0 9 Z" fill="{color}"/></marker>'
    )


def _frame(box: Box, title: str) -> str:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="10" fill="#f8f9f9" stroke="#aab7b8"/>'
        f'<text x="{left + 12:.1f}" y="{top + 18:.1f}" font-size="11" fill="#566573">'
        f"{_escaped(title)}</text>"
    )


def _arrow(link: Link, points: list[tuple[float, float]]) -> str:
    color, dash = _COLORS[link.kind], _DASHES[link.kind]
    return (
        f'<path d="{_curve(points)}" fill="none" stroke="{color}" stroke-width="1.3"{dash} '
        f'marker-end="url(#arrow-{link.kind})"/>'
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


def _label(link: Link, points: list[tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = points[-2:]
    if y2 - y1 < 8 and len(points) > 2:
        (x1, y1), (x2, y2) = points[-3:-1]
    return (
        f'<text x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 3:.1f}" font-size="10" '
        f'text-anchor="middle" fill="{_COLORS[link.kind]}" {_HALO}>{_escaped(link.label)}</text>'
    )


def _loop_room(layout: Layout) -> float:
    """Return the room that arrows of state need to the right of everything."""
    longest = max((len(link.label) for link in layout.backs), default=0)
    return 24.0 + 14.0 * len(layout.backs) + 6 * longest if layout.backs else 0.0


def _loops(layout: Layout) -> list[str]:
    """Return the arrows of state, which go around everything on the right."""
    parts = []
    for number, link in enumerate(layout.backs):
        source, target = layout.boxes[link.source], layout.boxes[link.target]
        x1, x2 = source.x + source.width / 2, target.x + target.width / 2
        turn = layout.width + 16 + 14 * number
        up = -1 if target.y < source.y else 1
        y1, y2 = source.y, target.y
        if abs(y1 - y2) < 1:
            y2 = y1 - 10
            up = -1
        bend = min(12.0, abs(y2 - y1) / 2)
        path = (
            f"M{x1:.1f} {y1:.1f} H{turn - bend:.1f} Q{turn:.1f} {y1:.1f} {turn:.1f} "
            f"{y1 + up * bend:.1f} V{y2 - up * bend:.1f} Q{turn:.1f} {y2:.1f} {turn - bend:.1f} "
            f"{y2:.1f} H{x2:.1f}"
        )
        parts.append(
            f'<path d="{path}" fill="none" stroke="{_COLORS["state"]}" stroke-width="1.5"'
            f'{_DASHES["state"]} marker-end="url(#arrow-state)"/>'
            f'<text x="{turn + 5:.1f}" y="{(y1 + y2) / 2 + 4:.1f}" font-size="10" '
            f'fill="{_COLORS["state"]}" {_HALO}>{_escaped(link.label)}</text>'
        )
    return parts


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
    return f'<g data-node="{_escaped(item.id)}">{outline}{"".join(rows)}</g>'


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
