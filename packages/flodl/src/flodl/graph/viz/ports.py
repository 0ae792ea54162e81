"""Where arrows leave and arrive: through the frames of groups, and side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.graph.viz.boxes import Box, Point, Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.graph.viz.scene import Link, Scene

_APART, _EDGE = 16.0, 10.0
_FLAT = frozenset({"box", "box3d", "parallelogram"})
"""Shapes whose upper edge has room for arrows beside each other."""


class Ports:
    """The ends of the arrows between the members of one group.

    Args:
        scene: What is shown.
        boxes: Where everything in the group lies, and everything in it.
        links: Arrows between its members.
        ends: For each arrow the items inside the members where it really begins and ends.
        approach: For each arrow the x from which it comes to its target.
    """

    def __init__(
        self,
        scene: Scene,
        boxes: dict[str, Box],
        links: Sequence[Link],
        ends: Sequence[tuple[list[str], list[str]]],
        approach: Sequence[float],
    ) -> None:
        self._boxes = boxes
        self._links = links
        self._ends = ends
        self._shapes = {item.id: item.shape for item in scene.items}
        self._items = [boxes[item.id] for item in scene.items if item.id in boxes]
        self._aside = self._sideways(approach)

    def routes(self, number: int, middle: list[Point]) -> list[Route]:
        """Return the way of an arrow through these points; several when it spreads in a frame."""
        link = self._links[number]
        sources, targets = (list(dict.fromkeys(names)) for names in self._ends[number])
        begin = self._leaving(link.source, sources)
        aside = self._aside[number]
        if len(targets) > 1:
            box = self._boxes[link.target]
            joint = (box.x, box.top)
            fan = [
                Route(type(link)(link.target, name, link.kind), [joint, self._top(name, 0.0)])
                for name in targets
            ]
            return [Route(link, [*begin, *middle, joint], has_head=False), *fan]
        return [Route(link, [*begin, *middle, *self._arriving(link.target, targets[0], aside)])]

    def _leaving(self, member: str, sources: list[str]) -> list[Point]:
        """Return the points from the item where an arrow begins to the edge of its member."""
        box = self._boxes[member]
        if len(sources) == 1 and sources[0] != member:
            item = self._boxes[sources[0]]
            start, edge = (item.x, item.bottom), (item.x, box.bottom)
            if self._is_clear(start, edge, item):
                return [start, edge]
        return [(box.x, box.bottom)]

    def _arriving(self, member: str, target: str, aside: float) -> list[Point]:
        box = self._boxes[member]
        end = self._top(target, aside)
        if member == target:
            return [end]
        edge = (end[0], box.top)
        clear = self._is_clear(edge, end, self._boxes[target])
        return [edge, end] if clear else [(box.x + aside, box.top)]

    def _top(self, name: str, aside: float) -> Point:
        box = self._boxes[name]
        return box.x + aside, box.top

    def _is_clear(self, start: Point, end: Point, own: Box) -> bool:
        return not any(box is not own and box.meets(start, end) for box in self._items)

    def _sideways(self, approach: Sequence[float]) -> list[float]:
        """Return how far from the middle of its target each reference arrives."""
        result = [0.0] * len(self._links)
        arriving: dict[str, list[int]] = {}
        for number, (_, targets) in enumerate(self._ends):
            if len(set(targets)) == 1:
                arriving.setdefault(targets[0], []).append(number)
        for name, numbers in arriving.items():
            if len(numbers) == 1 or self._shapes.get(name, "box") not in _FLAT:
                continue
            box = self._boxes[name]
            references = [n for n in numbers if self._links[n].kind == "reference"]
            lefts = sorted(
                (n for n in references if approach[n] <= box.x), key=lambda n: -approach[n]
            )
            rights = sorted(
                (n for n in references if approach[n] > box.x), key=approach.__getitem__
            )
            for sign, side in ((-1, lefts), (1, rights)):
                step = min(_APART, (box.width / 2 - _EDGE) / max(1, len(side)))
                for place, number in enumerate(side, 1):
                    result[number] = sign * step * place
        return result
