"""Arithmetic on half-open ranges of positions in an epoch's order."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from flodl.distributed.protocol.values import Range, Ranges


def length(ranges: Iterable[Range]) -> int:
    """Return how many positions the ranges hold."""
    return sum(stop - start for start, stop in ranges)


def cut(ranges: Ranges, first: int, end: int) -> Ranges:
    """Return the ranges of the positions ``first`` to ``end`` of their concatenation."""
    found, offset = [], 0
    for start, stop in ranges:
        low = max(start, start + first - offset)
        high = min(stop, start + end - offset)
        if low < high:
            found.append((low, high))
        offset += stop - start
    return tuple(found)


def joined(ranges: Iterable[Range]) -> Ranges:
    """Return the ranges in ascending order, with neighbors that touch made one."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def between(ranges: Iterable[Range], first: int, end: int) -> Ranges:
    """Return what the ranges have from ``first`` to ``end``, counted from ``first``."""
    found = ((max(start, first), min(stop, end)) for start, stop in ranges)
    return tuple((low - first, high - first) for low, high in found if low < high)


def beyond(ranges: Iterable[Range], first: int) -> Ranges:
    """Return what the ranges have from ``first`` on, counted from there."""
    return between(ranges, first, sys.maxsize)


def complement(ranges: Iterable[Range], whole: Range) -> Ranges:
    """Return what ``whole`` has besides the ranges, which do not overlap and lie within it."""
    found: list[Range] = []
    position, end = whole
    for start, stop in sorted(ranges):
        if position < start:
            found.append((position, start))
        position = stop
    if position < end:
        found.append((position, end))
    return tuple(found)


def overlapping(ranges: Iterable[Range]) -> Range | None:
    """Return the first range that overlaps one before it, or ``None``."""
    end = None
    for start, stop in sorted(ranges):
        if end is not None and start < end:
            return start, stop
        end = stop
    return None
