"""Where the labels of arrows stand: on their way, over nothing else."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from flodl.graph.viz.boxes import Box, Layout, Point, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flodl.graph.viz.scene import Scene

_CHAR, _HEIGHT, _SHORT = 5.8, 12.0, 12.0
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
        box = next((box for box in boxes if not _hits(box, taken)), boxes[0])
        taken.append(box)
        result.append((route, (box.x, box.y)))
    return result


def _candidates(route: Route) -> Iterator[Point]:
    """Yield points on the way, the last part that is long enough first."""
    parts = [part for part in pairwise(route.points) if part[1][1] - part[0][1] >= _SHORT]
    for (x1, y1), (x2, y2) in reversed(parts or list(pairwise(route.points))):
        for share in _SHARES:
            smooth = share * share * (3 - 2 * share)
            along = 1.5 * share * (1 - share) + share**3
            yield x1 + (x2 - x1) * smooth, y1 + (y2 - y1) * along


def _hits(box: Box, others: list[Box]) -> bool:
    return any(
        abs(box.x - other.x) < (box.width + other.width) / 2
        and abs(box.y - other.y) < (box.height + other.height) / 2
        for other in others
    )
