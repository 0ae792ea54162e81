"""A layered layout of a scene: layers from top to bottom, few crossings, straight lines.

After Sugiyama, Tagawa and Toda (1981): layers by longest path, invisible points where an arrow
crosses a layer, order by the median of neighbors, then positions by least squares. A group is
laid out on its own and takes part in the layout around it as one box.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flodl.graph.viz.order import Layered, order_layers
from flodl.graph.viz.place import place_columns

if TYPE_CHECKING:
    from flodl.graph.viz.scene import Item, Link, Scene

GAP_X, GAP_Y, PADDING, TITLE = 28.0, 38.0, 16.0, 22.0
_CHAR, _LINE = 6.7, 15.0
_ROOMY = {"diamond": (1.5, 1.7), "ellipse": (1.25, 1.25), "house": (1.2, 1.35)}
_ROOMY |= {"invhouse": (1.2, 1.35), "parallelogram": (1.3, 1.0), "doubleoctagon": (1.2, 1.3)}


@dataclass(slots=True)
class Box:
    """Where something lies: center and size."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, dx: float, dy: float) -> Box:
        """Return the box at another place."""
        return Box(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(slots=True)
class Layout:
    """Where everything lies.

    Attributes:
        width: Of the whole.
        height: Of the whole.
        boxes: By id of an item or group.
        routes: For each link drawn, its points from source to target.
        backs: Links against the direction of the layers, which carry state.
    """

    width: float
    height: float
    boxes: dict[str, Box] = field(default_factory=dict)
    routes: list[tuple[Link, list[tuple[float, float]]]] = field(default_factory=list)
    backs: list[Link] = field(default_factory=list)


def item_size(item: Item, extra: int = 0) -> tuple[float, float]:
    """Return width and height of an item with its text and further lines."""
    texts = [item.title, *item.lines]
    rows = len(texts) + extra
    if item.shape == "circle":
        side = max(34.0, len(item.title) * _CHAR + 16)
        below = (rows - 1) * _LINE
        return max(side, *(len(text) * _CHAR for text in texts)), side + below
    wide, high = _ROOMY.get(item.shape, (1.0, 1.0))
    width = max(len(text) for text in texts) * _CHAR * wide + 24
    return max(64.0, width), (rows * _LINE + 14) * high


def lay_out(scene: Scene, extra: int = 0) -> Layout:
    """Return the layout of a scene; items have room for ``extra`` more lines of text."""
    return _Group(scene, "", extra).layout()


class _Group:
    """The layout of what lies directly in a group, its own groups being boxes."""

    def __init__(self, scene: Scene, name: str, extra: int) -> None:
        self._scene = scene
        self._name = name
        self._extra = extra
        self._parent = {item.id: item.group for item in scene.items}
        self._parent |= {group.id: group.group for group in scene.groups}

    def layout(self) -> Layout:
        inner = {
            group.id: _Group(self._scene, group.id, self._extra).layout()
            for group in self._scene.groups
            if group.group == self._name
        }
        sizes = {
            item.id: item_size(item, self._extra)
            for item in self._scene.items
            if item.group == self._name
        }
        sizes |= {
            name: (part.width + 2 * PADDING, part.height + 2 * PADDING + TITLE)
            for name, part in inner.items()
        }
        links, backs = self._projected(sizes)
        layered = order_layers(
            list(sizes),
            [(link.source, link.target) for link in links],
            [link.kind == "reference" for link in links],
        )
        result = self._coordinates(layered, sizes, links)
        result.backs = backs
        for name, part in inner.items():
            self._insert(result, name, part)
        return result

    def _projected(self, members: dict[str, tuple[float, float]]) -> tuple[list[Link], list[Link]]:
        """Return the links between what lies directly in here, each once, and those of state."""
        links: dict[tuple[str, str, str, str], Link] = {}
        backs = []
        for link in self._scene.links:
            source = self._member(link.source, members)
            target = self._member(link.target, members)
            if source is None or target is None or source == target:
                continue
            if link.kind == "state":
                backs.append(link)
                continue
            new = type(link)(source, target, link.kind, link.label)
            links.setdefault((source, target, link.kind, link.label), new)
        return list(links.values()), backs

    def _member(self, name: str, members: dict[str, tuple[float, float]]) -> str | None:
        current = name
        while current and current not in members:
            current = self._parent.get(current, "")
        return current or None

    def _coordinates(
        self, layered: Layered, sizes: dict[str, tuple[float, float]], links: list[Link]
    ) -> Layout:
        widths = {name: sizes.get(name, (6.0, 0.0))[0] for name in layered.layer_of}
        columns = place_columns(layered, widths, GAP_X)
        y, rows = 0.0, []
        for layer in layered.layers:
            height = max((sizes.get(name, (0.0, 0.0))[1] for name in layer), default=0.0)
            rows.append((y + height / 2, height))
            y += height + GAP_Y
        left = min((columns[name] - widths[name] / 2 for name in columns), default=0.0)
        right = max((columns[name] + widths[name] / 2 for name in columns), default=0.0)
        result = Layout(right - left, max(y - GAP_Y, 0.0))
        for name, (width, height) in sizes.items():
            row = rows[layered.layer_of[name]][0]
            result.boxes[name] = Box(columns[name] - left, row, width, height)
        for link, chain in zip(links, layered.chains, strict=True):
            result.routes.append((link, self._route(chain, result, columns, rows, layered, left)))
        return result

    def _route(
        self,
        chain: list[str],
        result: Layout,
        columns: dict[str, float],
        rows: list[tuple[float, float]],
        layered: Layered,
        left: float,
    ) -> list[tuple[float, float]]:
        source, target = result.boxes[chain[0]], result.boxes[chain[-1]]
        points = [(source.x, source.y + source.height / 2)]
        for name in chain[1:-1]:
            middle, height = rows[layered.layer_of[name]]
            x = columns[name] - left
            points += [(x, middle - height / 2), (x, middle + height / 2)]
        return [*points, (target.x, target.y - target.height / 2)]

    def _insert(self, result: Layout, name: str, part: Layout) -> None:
        box = result.boxes[name]
        dx = box.x - box.width / 2 + PADDING
        dy = box.y - box.height / 2 + PADDING + TITLE
        result.boxes |= {key: inner.moved(dx, dy) for key, inner in part.boxes.items()}
        result.routes += [
            (link, [(x + dx, y + dy) for x, y in points]) for link, points in part.routes
        ]
        result.backs += part.backs
