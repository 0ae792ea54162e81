"""Choosing from names on the command line: comma lists, ``all``, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from ddp_bench.errors import UsageError


def split_names(text: str) -> list[str]:
    """Return the names of a comma list, in order and each once.

    Raises:
        UsageError: The list is empty or has an empty place in it.
    """
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(
            f"{text!r}: a name is missing", hint="separate names with one comma, without a last one"
        )
    return list(dict.fromkeys(names))


def unknown_name(kind: str, name: str, legal: Iterable[str]) -> UsageError:
    """Return the error for a name that is not there, with the nearest and all legal names."""
    names: Sequence[str] = list(legal)
    near = get_close_matches(name.lower(), names, n=3)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        f"unknown {kind} {name!r}; {kind}s: {', '.join(names)}",
        hint=f"{guess}'--list' describes each",
    )
