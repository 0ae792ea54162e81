"""Which layer things lie in, and in which order, so that few arrows cross."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 12


@dataclass(slots=True)
class Layered:
    """Things in layers, with invisible points where an arrow crosses a layer.

    Attributes:
        layers: Names from left to right, top layer first.
        layer_of: Layer of each name.
        chains: For each arrow, the names from source to target, invisible points between.
        side: Pairs of neighbors that only side arrows connect; they bend before others do.
    """

    layers: list[list[str]]
    layer_of: dict[str, int]
    chains: list[list[str]]
    side: set[tuple[str, str]]

    def neighbors(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return for each name what lies above it and what below."""
        above: dict[str, list[str]] = {name: [] for name in self.layer_of}
        below: dict[str, list[str]] = {name: [] for name in self.layer_of}
        for chain in self.chains:
            for upper, lower in pairwise(chain):
                if lower not in below[upper]:  # arrows may share points
                    below[upper].append(lower)
                    above[lower].append(upper)
        return above, below


def order_layers(
    names: list[str], arrows: list[tuple[str, str]], is_side: list[bool] | None = None
) -> Layered:
    """Return names in layers; arrows must form no cycle.

    Side arrows from one source share a trunk, from which each branches off.
    """
    side_flags = is_side or [False] * len(arrows)
    layer_of = _layers(names, arrows)
    chains = []
    main: set[tuple[str, str]] = set()
    side: set[tuple[str, str]] = set()
    for number, (source, target) in enumerate(arrows):
        between = range(layer_of[source] + 1, layer_of[target])
        trunk = source if side_flags[number] else str(number)
        points = [f"\0{trunk}.{layer}" for layer in between]
        layer_of |= dict(zip(points, between, strict=True))
        chain = [source, *points, target]
        chains.append(chain)
        (side if side_flags[number] else main).update(pairwise(chain))
    layers: list[list[str]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for name, layer in layer_of.items():
        layers[layer].append(name)
    layered = Layered(layers, layer_of, chains, side - main)
    _reduce_crossings(layered)
    return layered


def _layers(names: list[str], arrows: list[tuple[str, str]]) -> dict[str, int]:
    below: dict[str, list[str]] = {name: [] for name in names}
    waiting = dict.fromkeys(names, 0)
    for source, target in arrows:
        below[source].append(target)
        waiting[target] += 1
    sources = [name for name in names if waiting[name] == 0]
    layer_of = dict.fromkeys(names, 0)
    ready = list(sources)
    while ready:
        name = ready.pop()
        for target in below[name]:
            layer_of[target] = max(layer_of[target], layer_of[name] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    for name in sources:
        # What nothing leads to lies right above what first reads it.
        if below[name]:
            layer_of[name] = min(layer_of[target] for target in below[name]) - 1
    return layer_of


def _reduce_crossings(layered: Layered) -> None:
    above, below = layered.neighbors()
    best = [list(layer) for layer in layered.layers]
    fewest = _crossings(layered.layers, below)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        order = layered.layers if down else layered.layers[::-1]
        for fixed, moving in pairwise(order):
            place = {name: index for index, name in enumerate(fixed)}
            own = {name: float(index) for index, name in enumerate(moving)}
            neighbors = above if down else below
            moving.sort(key=lambda name: _median(neighbors[name], place, own[name]))
        crossings = _crossings(layered.layers, below)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layered.layers], crossings
    layered.layers[:] = best


def _median(names: list[str], place: dict[str, int], own: float) -> float:
    places = [place[name] for name in names if name in place]
    return float(statistics.median(places)) if places else own


def _crossings(layers: list[list[str]], below: dict[str, list[str]]) -> int:
    total = 0
    for upper, lower in pairwise(layers):
        place = {name: index for index, name in enumerate(lower)}
        ends = [sorted(place[name] for name in below[source]) for source in upper]
        flat = [end for group in ends for end in group]
        total += sum(
            1 for index, end in enumerate(flat) for other in flat[index + 1 :] if other < end
        )
    return total
