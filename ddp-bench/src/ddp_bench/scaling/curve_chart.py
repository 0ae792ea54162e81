"""The curves as a picture: part of the sum of speeds over the number of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from ddp_bench.scaling.curve_bars import Point

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 130, 24, 44
_COLORS = ("#1b6ca8", "#c8553d", "#2e8b57", "#8a5a9e", "#9a7b00")
_STEPS = 5


def chart(points: Sequence[Point]) -> str:
    """Return an SVG with one line for each way that speeds differ."""
    if not points:
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"/>\n'
    worlds = sorted({point.world for point in points})
    low, high = math.log(worlds[0]), math.log(worlds[-1])

    def x(world: int) -> float:
        part = (math.log(world) - low) / (high - low) if high > low else 0.5
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (1 - value) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12" role="img">',
        "<title>Part of the sum of all speeds that is reached, over the number of ranks</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for step in range(_STEPS + 1):
        value = step / _STEPS
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="#dddddd"/><text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{value:.1f}</text>'
        )
    parts += [
        f'<text x="{x(world):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{world}</text>'
        for world in worlds
    ]
    for number, speeds in enumerate(dict.fromkeys(point.speeds for point in points)):
        line = sorted((p.world, p.efficiency) for p in points if p.speeds == speeds)
        path = " ".join(f"{x(world):.1f},{y(value):.1f}" for world, value in line)
        color = _COLORS[number % len(_COLORS)]
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{_TOP + 18 * number + 12}" fill="{color}">'
            f"{escape(speeds)}</text>"
        )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 8}" '
        'text-anchor="middle">ranks</text></svg>'
    )
    return "\n".join(parts) + "\n"
