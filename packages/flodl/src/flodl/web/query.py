"""Query parameters, checked."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from flodl.core.paths import ROOT, is_record_path
from flodl.web.errors import ApiError

_MOST_DIGITS = 15


def path_of(query: QueryParams, name: str = "path") -> str:
    """Return a record path parameter, ``root`` where there is none.

    Raises:
        ApiError: It is no record path.
    """
    text = query.get(name, ROOT)
    if not is_record_path(text):
        raise ApiError(400, "bad_path", f"{name}: not a record path such as root/host-a/rank1")
    return text


def optional_path(query: QueryParams, name: str) -> str | None:
    """Return a record path parameter, ``None`` where there is none.

    Raises:
        ApiError: It is no record path.
    """
    return path_of(query, name) if name in query else None


def count_of(
    query: QueryParams, name: str, *, most: int | None = None, least: int = 0
) -> int | None:
    """Return a whole-number parameter, cut to ``most``; ``None`` where there is none.

    Raises:
        ApiError: It is not a whole number of at least ``least``.
    """
    text = query.get(name)
    if text is None:
        return None
    value = whole_number(name, text)
    if value < least:
        raise ApiError(400, "bad_query", f"{name}: must be at least {least}")
    return value if most is None else min(value, most)


def whole_number(name: str, text: str) -> int:
    """Return a number that a viewer has sent under a name.

    Raises:
        ApiError: It is not a whole number, or one of too many digits.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise ApiError(400, "bad_query", f"{name}: must be a whole number, not negative")
    return int(text)


def flag_of(query: QueryParams, name: str) -> bool:
    """Return whether a parameter is ``1``.

    Raises:
        ApiError: It is neither ``0`` nor ``1``.
    """
    text = query.get(name, "0")
    if text not in {"0", "1"}:
        raise ApiError(400, "bad_query", f"{name}: must be 0 or 1")
    return text == "1"


def choice_of(query: QueryParams, name: str, choices: tuple[str, ...]) -> str:
    """Return a parameter with a few legal values, the first of them where there is none.

    Raises:
        ApiError: It is none of them.
    """
    text = query.get(name, choices[0])
    if text not in choices:
        raise ApiError(400, "bad_query", f"{name}: must be one of {', '.join(choices)}")
    return text
