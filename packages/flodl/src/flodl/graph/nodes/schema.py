"""What attributes of a node may be: checked when a topology is read from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

Rule: TypeAlias = Callable[[object], bool]
Schema: TypeAlias = Mapping[str, Rule]


def flag(value: object) -> bool:
    """Accept a truth value."""
    return isinstance(value, bool)


def whole(value: object) -> bool:
    """Accept any whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def count(value: object) -> bool:
    """Accept a whole number from 1 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def number(value: object) -> bool:
    """Accept a finite number that is no whole one."""
    return isinstance(value, float) and math.isfinite(value)


def text(value: object) -> bool:
    """Accept text."""
    return isinstance(value, str)


def sizes(value: object) -> bool:
    """Accept a tuple of whole numbers."""
    return isinstance(value, tuple) and all(map(whole, value))


def among(*legal: str) -> Rule:
    """Accept one of these texts."""
    return lambda value: isinstance(value, str) and value in legal


def optional(rule: Rule) -> Rule:
    """Accept nothing, or what a rule accepts."""
    return lambda value: value is None or rule(value)


def either(*rules: Rule) -> Rule:
    """Accept what one of the rules accepts."""
    return lambda value: any(rule(value) for rule in rules)
