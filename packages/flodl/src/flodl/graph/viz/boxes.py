"""Where things lie in a picture: boxes, the ways of arrows, and the sizes that text asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl.graph.viz.scene import Item, Link

GAP_X, GAP_Y, PADDING, TITLE = 28.0, 38.0, 16.0, 22.0
_CHAR, _LINE, _TOUCH = 6.7, 15.0, 0.01
_ROOMY = {"diamond": (1.5, 1.7), "ellipse": (1.25, 1.25), "house": (1.2, 1.35)}
_ROOMY |= {"invhouse": (1.2, 1.35), "parallelogram": (1.3, 1.0), "doubleoctagon": (1.2, 1.3)}

Point = tuple[float, float]


@dataclass(slots=True)
class Box:
    """Where something lies: center and size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """Least x."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Greatest x."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """Least y."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """Greatest y."""
        return self.y + self.height / 2

    def moved(self, dx: float, dy: float) -> Box:
        """Return the box at another place."""
        return Box(self.x + dx, self.y + dy, self.width, self.height)

    def meets(self, start: Point, end: Point) -> bool:
        """Return whether a straight line along an axis passes through the inside."""
        return (
            min(start[0], end[0]) < self.right - _TOUCH
            and max(start[0], end[0]) > self.left + _TOUCH
            and min(start[1], end[1]) < self.bottom - _TOUCH
            and max(start[1], end[1]) > self.top + _TOUCH
        )


@dataclass(slots=True)
class Route:
    """The way of an arrow from source to target; without a head it goes on in others."""

    link: Link
    points: list[Point]
    has_head: bool = True


@dataclass(slots=True)
class Layout:
    """Where everything lies.

    Attributes:
        width: Of the whole.
        height: Of the whole.
        boxes: By id of an item or group.
        routes: The ways of stream and references.
        loops: The ways of state, around everything, in straight lines.
    """

    width: float
    height: float
    boxes: dict[str, Box] = field(default_factory=dict)
    routes: list[Route] = field(default_factory=list)
    loops: list[Route] = field(default_factory=list)

    def shift(self, dx: float) -> None:
        """Move everything to the right."""
        self.boxes = {name: box.moved(dx, 0.0) for name, box in self.boxes.items()}
        for route in [*self.routes, *self.loops]:
            route.points = [(x + dx, y) for x, y in route.points]


def text_width(text: str) -> float:
    """Return the width of a line in an item."""
    return len(text) * _CHAR


def item_size(item: Item, extra: int = 0) -> tuple[float, float]:
    """Return width and height of an item with its text and further lines."""
    texts = [item.title, *item.lines]
    rows = len(texts) + extra
    if item.shape == "circle":
        side = max(34.0, text_width(item.title) + 16)
        below = (rows - 1) * _LINE
        return max(side, *map(text_width, texts)), side + below
    wide, high = _ROOMY.get(item.shape, (1.0, 1.0))
    width = max(map(text_width, texts)) * wide + 24
    return max(64.0, width), (rows * _LINE + 14) * high
