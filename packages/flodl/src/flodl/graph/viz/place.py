"""Positions within layers: near their neighbors, in the given order, not overlapping."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl.graph.viz.order import Layered

_SWEEPS = 24
_STRAIGHT, _PLAIN, _BENT, _SIDE = 8.0, 4.0, 0.05, 0.02


def place_columns(layered: Layered, widths: dict[str, float], gap: float) -> dict[str, float]:
    """Return the horizontal center of every name."""
    columns: dict[str, float] = {}
    for layer in layered.layers:
        left = 0.0
        for name in layer:
            columns[name] = left + widths[name] / 2
            left += widths[name] + gap
        for name in layer:
            columns[name] -= (left - gap) / 2
    above, below = layered.neighbors()
    both = {name: above[name] + below[name] for name in columns}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        # At last every layer is drawn to both sides at once.
        toward = both if sweep >= _SWEEPS - 4 else above if down else below
        for layer in layered.layers if down else layered.layers[::-1]:
            _place_layer(layer, columns, toward, widths, gap, layered.side)
    for run in spines(layered):
        _straighten(run, layered, columns, widths, gap)
    for chain in layered.chains:
        _straighten(chain[1:-1], layered, columns, widths, gap)
    return columns


def spines(layered: Layered) -> list[list[str]]:
    """Return runs of names of which each leads only to the next; side arrows do not count."""
    below: dict[str, list[str]] = {}
    above: dict[str, list[str]] = {}
    for chain in layered.chains:
        if len(chain) == 2 and tuple(chain) not in layered.side:
            below.setdefault(chain[0], []).append(chain[1])
            above.setdefault(chain[1], []).append(chain[0])
    after = {
        name: targets[0]
        for name, targets in below.items()
        if len(set(targets)) == 1 and len(set(above[targets[0]])) == 1
    }
    runs = []
    for name in after.keys() - set(after.values()):
        run = [name]
        while run[-1] in after:
            run.append(after[run[-1]])
        runs.append(run)
    return sorted(runs)


def _straighten(
    points: list[str],
    layered: Layered,
    columns: dict[str, float],
    widths: dict[str, float],
    gap: float,
) -> None:
    """Give runs of an arrow's points one column, wherever the room between neighbors allows."""
    run: list[str] = []
    low, high = -math.inf, math.inf
    for point in [*points, ""]:
        left, right = _room(point, layered, columns, widths, gap) if point else (1.0, 0.0)
        if max(low, left) > min(high, right):
            _align(run, low, high, columns)
            run, low, high = [], -math.inf, math.inf
        run.append(point)
        low, high = max(low, left), min(high, right)


def _align(run: list[str], low: float, high: float, columns: dict[str, float]) -> None:
    if run:
        mean = sum(columns[name] for name in run) / len(run)
        for name in run:
            columns[name] = min(max(mean, low), high)


def _room(
    name: str,
    layered: Layered,
    columns: dict[str, float],
    widths: dict[str, float],
    gap: float,
) -> tuple[float, float]:
    """Return how far left and right a name may move in its layer."""
    layer = layered.layers[layered.layer_of[name]]
    index = layer.index(name)
    low, high = -math.inf, math.inf
    if index:
        other = layer[index - 1]
        low = columns[other] + (widths[other] + widths[name]) / 2 + gap
    if index + 1 < len(layer):
        other = layer[index + 1]
        high = columns[other] - (widths[other] + widths[name]) / 2 - gap
    return min(low, columns[name]), max(high, columns[name])


def _place_layer(
    layer: list[str],
    columns: dict[str, float],
    toward: dict[str, list[str]],
    widths: dict[str, float],
    gap: float,
    side: set[tuple[str, str]],
) -> None:
    """Move one layer: least squares to where each name wants to be, order and gaps kept.

    With the gaps taken off, positions must only not decrease: pooling neighbors that are out of
    order solves that exactly.
    """
    offsets, total = [], 0.0
    for index, name in enumerate(layer):
        if index:
            total += (widths[layer[index - 1]] + widths[name]) / 2 + gap
        offsets.append(total)
    pools: list[tuple[float, float, int]] = []
    for name, offset in zip(layer, offsets, strict=True):
        wish, weight = _wish(name, columns, toward[name], side)
        pool = (wish - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, before, count = pools.pop()
            mass = before + pool[1]
            pool = ((mean * before + pool[0] * pool[1]) / mass, mass, count + pool[2])
        pools.append(pool)
    places = [mean for mean, _, count in pools for _ in range(count)]
    for name, place, offset in zip(layer, places, offsets, strict=True):
        columns[name] = place + offset


def _wish(
    name: str, columns: dict[str, float], neighbors: list[str], side: set[tuple[str, str]]
) -> tuple[float, float]:
    if not neighbors:
        return columns[name], 0.01
    weights = [_weight(name, other, side) for other in neighbors]
    mass = sum(weights)
    pairs = zip(weights, neighbors, strict=True)
    return sum(weight * columns[other] for weight, other in pairs) / mass, mass


def _weight(one: str, other: str, side: set[tuple[str, str]]) -> float:
    """Return how straight the arrow between two names should be; points have invisible names."""
    points = one.startswith("\0") + other.startswith("\0")
    is_side = points < 2 and ((one, other) in side or (other, one) in side)
    return _SIDE if is_side else (_PLAIN, _BENT, _STRAIGHT)[points]
