"""A layered layout of a scene: layers from top to bottom, few crossings, straight lines.

After Sugiyama, Tagawa and Toda (1981): layers by longest path, invisible points where an arrow
crosses a layer, order by the median of neighbors, then positions by least squares. A group is
laid out on its own and takes part in the layout around it as one box.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.graph.viz.boxes import GAP_X, GAP_Y, PADDING, TITLE, Box, Layout, Route, item_size
from flodl.graph.viz.loops import add_loops
from flodl.graph.viz.order import Layered, order_layers
from flodl.graph.viz.place import place_columns
from flodl.graph.viz.ports import Ports

if TYPE_CHECKING:
    from flodl.graph.viz.scene import Link, Scene

_FAN = 22.0
"""Room in a frame for arrows that spread to everything in it."""


def lay_out(scene: Scene, extra: int = 0) -> Layout:
    """Return the layout of a scene; items have room for ``extra`` more lines of text."""
    layout = _Group(scene, "", extra).layout()
    add_loops(scene, layout)
    return layout


_LABEL, _MOST_LABELS = 14.0, 3
"""Room for one more label between two layers, and for how many there is room."""


class _Group:
    """The layout of what lies directly in a group, its own groups being boxes."""

    def __init__(self, scene: Scene, name: str, extra: int) -> None:
        self._scene = scene
        self._name = name
        self._extra = extra
        self._parent = {item.id: item.group for item in scene.items}
        self._parent |= {group.id: group.group for group in scene.groups}
        self._links: list[Link] = []
        self._ends: list[tuple[list[str], list[str]]] = []

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
        tops = {name: PADDING + TITLE + self._fan_room(name) for name in inner}
        for name, part in inner.items():
            self._balance(name, part)
            sizes[name] = (part.width + 2 * PADDING, part.height + PADDING + tops[name])
        self._project(sizes)
        layered = order_layers(
            list(sizes),
            [(link.source, link.target) for link in self._links],
            [link.kind == "reference" for link in self._links],
        )
        return self._coordinates(layered, sizes, inner, tops)

    def _balance(self, name: str, part: Layout) -> None:
        """Widen a group so that the item where its only stream enters lies in the middle."""
        entered = self._entered(name)
        if len(entered) == 1:
            axis = part.boxes[entered.pop()].x
            lead = max(axis, part.width - axis)
            part.shift(lead - axis)
            part.width = 2 * lead

    def _fan_room(self, name: str) -> float:
        """Return the room above a group's members for a stream that goes to several of them."""
        return _FAN if len(self._entered(name)) > 1 else 0.0

    def _entered(self, name: str) -> set[str]:
        return {
            link.target
            for link in self._scene.links
            if link.kind == "stream"
            and self._is_in(link.target, name)
            and not self._is_in(link.source, name)
        }

    def _is_in(self, item: str, group: str) -> bool:
        while item and item != group:
            item = self._parent.get(item, "")
        return item == group

    def _project(self, members: dict[str, tuple[float, float]]) -> None:
        """Find the links between what lies directly in here, each once, and their real ends."""
        found: dict[tuple[str, str, str, str], tuple[list[str], list[str]]] = {}
        for link in self._scene.links:
            source = self._member(link.source, members)
            target = self._member(link.target, members)
            if source is None or target is None or source == target or link.kind == "state":
                continue
            ends = found.setdefault((source, target, link.kind, link.label), ([], []))
            ends[0].append(link.source)
            ends[1].append(link.target)
        kind = type(self._scene.links[0]) if self._scene.links else None
        self._links = [kind(*key) for key in found] if kind else []
        self._ends = list(found.values())

    def _member(self, name: str, members: dict[str, tuple[float, float]]) -> str | None:
        current = name
        while current and current not in members:
            current = self._parent.get(current, "")
        return current or None

    def _coordinates(
        self,
        layered: Layered,
        sizes: dict[str, tuple[float, float]],
        inner: dict[str, Layout],
        tops: dict[str, float],
    ) -> Layout:
        widths = {name: sizes.get(name, (6.0, 0.0))[0] for name in layered.layer_of}
        columns = place_columns(layered, widths, GAP_X)
        left = min((columns[name] - widths[name] / 2 for name in columns), default=0.0)
        columns = {name: x - left for name, x in columns.items()}
        y, rows = 0.0, []
        gaps = self._gaps(layered)
        for layer, gap in zip(layered.layers, gaps, strict=True):
            height = max((sizes.get(name, (0.0, 0.0))[1] for name in layer), default=0.0)
            rows.append((y, y + height))
            y += height + gap
        width = max((columns[name] + widths[name] / 2 for name in columns), default=0.0)
        if self._name and self._fan_room(self._name):
            # What spreads from the middle of the frame comes together there.
            columns |= {layer[0]: width / 2 for layer in layered.layers if len(layer) == 1}
        result = Layout(width, max(y - (gaps[-1] if gaps else 0.0), 0.0))
        led_to = {link.target for link in self._links}
        for name, size in sizes.items():
            top, bottom = rows[layered.layer_of[name]]
            # What nothing leads to lies close to what reads it.
            middle = (top + bottom) / 2 if name in led_to else bottom - size[1] / 2
            result.boxes[name] = Box(columns[name], middle, *size)
        for name, part in inner.items():
            _insert(result, name, part, tops[name])
        self._route(result, layered, columns, rows)
        return result

    def _gaps(self, layered: Layered) -> list[float]:
        """Return the room below each layer: more where several arrows with labels arrive."""
        labels = [0] * len(layered.layers)
        for link, chain in zip(self._links, layered.chains, strict=True):
            labels[layered.layer_of[chain[-2]]] += bool(link.label)
        return [GAP_Y + _LABEL * min(max(count - 1, 0), _MOST_LABELS) for count in labels]

    def _route(
        self,
        result: Layout,
        layered: Layered,
        columns: dict[str, float],
        rows: list[tuple[float, float]],
    ) -> None:
        approach = [columns[chain[-2]] for chain in layered.chains]
        ports = Ports(self._scene, result.boxes, self._links, self._ends, approach)
        for number, chain in enumerate(layered.chains):
            middle = []
            for name in chain[1:-1]:
                top, bottom = rows[layered.layer_of[name]]
                middle += [(columns[name], top), (columns[name], bottom)]
            result.routes += ports.routes(number, middle)


def _insert(result: Layout, name: str, part: Layout, top: float) -> None:
    box = result.boxes[name]
    dx, dy = box.left + PADDING, box.top + top
    result.boxes |= {key: inner.moved(dx, dy) for key, inner in part.boxes.items()}
    result.routes += [
        Route(route.link, [(x + dx, y + dy) for x, y in route.points], route.has_head)
        for route in part.routes
    ]
