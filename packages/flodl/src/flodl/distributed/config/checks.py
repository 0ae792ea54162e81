"""Checks that settings of a run share: each returns its problems as text, none raises."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from flodl.core.errors import ConfigError


def is_whole(value: object, least: int) -> bool:
    """Return whether a value is a whole number of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object, *, above: float, most: float = math.inf) -> bool:
    """Return whether a value is a finite number in ``(above, most]``."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and above < value <= most
    )


def whole(name: str, value: object, least: int, *, optional: bool = False) -> Iterator[str]:
    """Give a problem unless the value is a whole number of at least ``least``."""
    if not (optional and value is None) and not is_whole(value, least):
        none = " or None" if optional else ""
        yield f"{name}={value!r}: must be a whole number of at least {least}{none}"


def positive(name: str, value: object, most: float = math.inf) -> Iterator[str]:
    """Give a problem unless the value is a finite number in ``(0, most]``."""
    if not is_number(value, above=0, most=most):
        end = "" if math.isinf(most) else f" up to {most:g}"
        yield f"{name}={value!r}: must be a positive number{end}"


def one_of(name: str, value: object, legal: Collection[object]) -> Iterator[str]:
    """Give a problem unless the value is one of the legal ones."""
    if value not in legal:
        yield f"{name}={value!r}: must be one of {', '.join(map(repr, legal))}"


def raise_for(problems: list[str]) -> None:
    """Raise one error that lists every problem, if there is any.

    Raises:
        ConfigError: There is.
    """
    if problems:
        raise ConfigError("; ".join(problems))
