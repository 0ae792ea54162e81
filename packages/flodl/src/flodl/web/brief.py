"""Records in fewer bytes, for pages: children's numbers with as many digits as one can see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flodl.records.record import Record, encode_json

MOST_DIGITS = 17
_NUMBERS = ("metrics", "res")


def brief_line(record: Record, scope: str, digits: int | None) -> bytes:
    """Return the JSON of a record as a viewer of ``scope`` gets it: children's numbers rounded.

    Args:
        record: The record; those of ``scope`` itself, and what is no node's, stay as they are.
        scope: Path that is looked at.
        digits: Significant digits that fractions keep, ``None`` for all. Whole numbers stay.
    """
    if digits is None or record.kind != "node" or record.path == scope:
        return record.line
    body: dict[str, Any] = json.loads(record.line)
    for name in _NUMBERS:
        if name in body:
            body[name] = _rounded(body[name], digits)
    return encode_json(body)


def _rounded(values: Mapping[str, Any], digits: int) -> dict[str, Any]:
    return {
        key: float(f"{value:.{digits}g}") if _is_fraction(value) else value
        for key, value in values.items()
    }


def _is_fraction(value: object) -> bool:
    return isinstance(value, float) and not value.is_integer()
