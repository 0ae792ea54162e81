"""Where the labels of arrows stand: on their way, over nothing else, crossed by few others."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from flodl.graph.viz.boxes import Box, Layout, Point, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flodl.graph.viz.scene import Scene

_CHAR, _HEIGHT, _SHORT = 5.8, 12.0, 12.0
_STEPS = 24  # of a curve that is looked at
_SHARES = (0.5, 0.38, 0.62, 0.26, 0.74, 0.14)


def label_places(scene: Scene, layout: Layout) -> list[tuple[Route, Point]]:
    """Return the middle of each label of the arrows that are no loops of state."""
    taken = [layout.boxes[item.id] for item in scene.items]
    result = []
    for route in layout.routes:
        if not route.link.label:
            continue
        width = len(route.link.label) * _CHAR
        boxes = [Box(x, y, width, _HEIGHT) for x, y in _candidates(route)]
        free = [box for box in boxes if not _hits(box, taken)] or boxes[:1]
        others = [each for each in layout.routes if each is not route]
        box = min(free, key=lambda box: crossings(box, others))  # the first of equals
        taken.append(box)
        result.append((route, (box.x, box.y)))
    return result


def _candidates(route: Route) -> Iterator[Point]:
    """Yield points on the way, the last part that is long enough first."""
    parts = [part for part in pairwise(route.points) if part[1][1] - part[0][1] >= _SHORT]
    for (x1, y1), (x2, y2) in reversed(parts or list(pairwise(route.points))):
        for share in _SHARES:
            yield _on_curve((x1, y1), (x2, y2), share)


def _on_curve(start: Point, end: Point, share: float) -> Point:
    """Return a point of the curve that is drawn between two points."""
    smooth = share * share * (3 - 2 * share)
    along = 1.5 * share * (1 - share) + share**3
    return start[0] + (end[0] - start[0]) * smooth, start[1] + (end[1] - start[1]) * along


def crossings(box: Box, routes: list[Route]) -> int:
    """Return how many of the routes go through a box."""
    return sum(any(_crosses(box, *part) for part in pairwise(each.points)) for each in routes)


def _crosses(box: Box, start: Point, end: Point) -> bool:
    half = box.height / 2
    if end[1] < box.y - half or start[1] > box.y + half:
        return False
    points = (_on_curve(start, end, step / _STEPS) for step in range(_STEPS + 1))
    return any(abs(x - box.x) < box.width / 2 and abs(y - box.y) < half for x, y in points)


def _hits(box: Box, others: list[Box]) -> bool:
    return any(
        abs(box.x - other.x) < (box.width + other.width) / 2
        and abs(box.y - other.y) < (box.height + other.height) / 2
        for other in others
    )
