"""The arrows of state: against the flow, around everything, through nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from flodl.graph.viz.boxes import Box, Layout, Point, Route, text_width

if TYPE_CHECKING:
    from flodl.graph.viz.scene import Link, Scene

_FIRST, _NEXT, _CLEARANCE = 18.0, 14.0, 12.0
_CROSSING = 10_000.0


def add_loops(scene: Scene, layout: Layout) -> None:
    """Add the ways of state to a layout, which grows at the sides where they run."""
    links = [link for link in scene.links if link.kind == "state"]
    if not links:
        return
    obstacles = _Obstacles(scene, layout)
    used = {-1: 0, 1: 0}
    room = {-1: 0.0, 1: 0.0}
    for link in links:
        side, points = min(
            (
                (side, points)
                for side in (1, -1)
                for points in obstacles.ways(link, side, used[side])
            ),
            key=lambda way: obstacles.cost(link, way[1]),
        )
        used[side] += 1
        trunk = _FIRST + _NEXT * (used[side] - 1)
        room[side] = max(room[side], trunk + 8 + text_width(link.label))
        layout.loops.append(Route(link, points))
    layout.shift(room[-1])
    layout.width += room[-1] + room[1]


class _Obstacles:
    """What a way may not cross, and which ways there are."""

    def __init__(self, scene: Scene, layout: Layout) -> None:
        self._layout = layout
        self._parent = {item.id: item.group for item in scene.items}
        self._parent |= {group.id: group.group for group in scene.groups}

    def ways(self, link: Link, side: int, used: int) -> list[list[Point]]:
        """Return the ways along one side of the picture.

        Each leaves its source sideways or downward and arrives sideways or from above.
        """
        source, target = self._layout.boxes[link.source], self._layout.boxes[link.target]
        outside = _FIRST + _NEXT * used
        trunk = self._layout.width + outside if side > 0 else -outside
        return [
            [*out, (trunk, out[-1][1]), (trunk, into[0][1]), *into]
            for out in (_sideways(source, side), _below(source, side))
            for into in (_sideways(target, side), _above(target)[::-1])
        ]

    def cost(self, link: Link, points: list[Point]) -> float:
        """Return the length of a way, and much more for each thing that it crosses."""
        length = sum(abs(x2 - x1) + abs(y2 - y1) for (x1, y1), (x2, y2) in pairwise(points))
        own = {*self._around(link.source), *self._around(link.target)}
        crossed = sum(
            box.meets(start, end)
            for name, box in self._layout.boxes.items()
            if name not in own
            for start, end in pairwise(points)
        )
        return length + _CROSSING * crossed

    def _around(self, name: str) -> list[str]:
        names = []
        while name:
            names.append(name)
            name = self._parent.get(name, "")
        return names


def _sideways(box: Box, side: int) -> list[Point]:
    return [(box.x + side * box.width / 2, box.y)]


def _below(box: Box, side: int) -> list[Point]:
    x = box.x + side * min(20.0, box.width / 4)
    return [(x, box.bottom), (x, box.bottom + _CLEARANCE)]


def _above(box: Box) -> list[Point]:
    return [(box.x, box.top), (box.x, box.top - _CLEARANCE)]
