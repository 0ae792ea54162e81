"""Which names tags, labels, inputs and keys may have, and near misses among known ones."""

from __future__ import annotations

import difflib
import keyword
import re
from typing import TYPE_CHECKING

from flodl.core.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


def check_name(name: object, call: str) -> str:
    """Return a legal name.

    Raises:
        FlowError: It is no identifier; ``call`` says who asked.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise FlowError(
            f"{call}: {name!r} is no legal name",
            hint="use letters, digits and underscores, not beginning with a digit; dots separate "
            "the parts of a path",
        )
    return name


def check_argument(name: object, call: str) -> str:
    """Return a legal name of an input, which must not be a keyword of Python or ``self``.

    Raises:
        FlowError: It is none.
    """
    checked = check_name(name, call)
    if keyword.iskeyword(checked) or checked == "self":
        raise FlowError(
            f"{call}: {checked!r} cannot be passed by name in Python", hint="choose another name"
        )
    return checked


def check_key(key: object, call: str) -> str:
    """Return a legal key: names or numbers joined by dots.

    Raises:
        FlowError: It is none.
    """
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise FlowError(
            f"{call}: {key!r} is no legal key",
            hint="use letters, digits and underscores joined by dots: encoder.layer.0",
        )
    return key


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint: the closest known names, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def one_of(value: str, legal: Sequence[str], call: str) -> str:
    """Return a value that is one of those that are legal, as plain text.

    Raises:
        FlowError: It is none of them.
    """
    if value not in legal:
        raise FlowError(f"{call}: {value!r} is none of {', '.join(map(repr, map(str, legal)))}")
    return str(value)


def check_count(value: object, call: str, what: str) -> None:
    """Refuse what is no whole number from 1 on.

    Raises:
        FlowError: It is none; ``what`` is what it counts.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FlowError(f"{call}: the number of {what} must be a whole number, 1 or more")
