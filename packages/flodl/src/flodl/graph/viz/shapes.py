"""The outlines of the shapes in pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl.graph.viz.boxes import Box


def outline(  # noqa: PLR0911 - one return a shape
    shape: str, box: Box, below: int, style: str
) -> tuple[str, float]:
    """Return the SVG of a shape, and the height at which its text is centered.

    A circle has its title inside and ``below`` further lines under it.
    """
    x, y, w, h = box.x, box.y, box.width, box.height
    left, right, top, bottom = x - w / 2, x + w / 2, y - h / 2, y + h / 2
    match shape:
        case "circle":
            radius = (h - 15 * below) / 2
            center = top + radius
            circle = f'<circle cx="{x:.1f}" cy="{center:.1f}" r="{radius:.1f}" {style}/>'
            return circle, center
        case "ellipse":
            return (
                f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{w / 2:.1f}" ry="{h / 2:.1f}" {style}/>'
            ), y
        case "diamond":
            return _polygon([(x, top), (right, y), (x, bottom), (left, y)], style), y
        case "parallelogram":
            slant = min(16.0, w / 5)
            corners = [(left + slant, top), (right, top), (right - slant, bottom), (left, bottom)]
            return _polygon(corners, style), y
        case "invhouse":
            waist = bottom - h / 3.2
            corners = [(left, top), (right, top), (right, waist), (x, bottom), (left, waist)]
            return _polygon(corners, style), y - h / 10
        case "house":
            waist = top + h / 3.2
            corners = [(left, bottom), (right, bottom), (right, waist), (x, top), (left, waist)]
            return _polygon(corners, style), y + h / 10
        case "doubleoctagon":
            inner = 'fill="none" stroke="#7f8c8d"'
            return _octagon(box, 0, style) + _octagon(box, 4, inner), y
        case "box3d":
            return _box3d(left, top, w, h, style), y + 2
        case _:
            return (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" rx="6" '
                f"{style}/>"
            ), y


def _box3d(left: float, top: float, w: float, h: float, style: str) -> str:
    d = 6.0
    front = (
        f'<rect x="{left:.1f}" y="{top + d:.1f}" width="{w - d:.1f}" height="{h - d:.1f}" {style}/>'
    )
    lid = [(left, top + d), (left + d, top), (left + w, top), (left + w - d, top + d)]
    wall = [(left + w - d, top + d), (left + w, top), (left + w, top + h - d)]
    wall.append((left + w - d, top + h))
    return front + _polygon(lid, style) + _polygon(wall, style)


def _octagon(box: Box, inset: float, style: str) -> str:
    left, right = box.x - box.width / 2 + inset, box.x + box.width / 2 - inset
    top, bottom = box.y - box.height / 2 + inset, box.y + box.height / 2 - inset
    cut = (bottom - top) / 3.4
    corners = [(left + cut, top), (right - cut, top), (right, top + cut), (right, bottom - cut)]
    corners += [(right - cut, bottom), (left + cut, bottom), (left, bottom - cut)]
    return _polygon([*corners, (left, top + cut)], style)


def _polygon(corners: list[tuple[float, float]], style: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" {style}/>'
