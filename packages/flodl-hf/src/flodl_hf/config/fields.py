"""Reading single values of a ``config.json``: the type is checked, nothing is guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flodl_hf.errors import ConfigError

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list of texts",
}


def read_value(key: str, value: Any, kind: str) -> Any:
    """Return a JSON value as the Python value of a field.

    Args:
        key: Its key, for the message.
        value: What the file holds; never ``None``.
        kind: ``int``, ``float``, ``bool``, ``str``, or ``list`` for texts.

    Raises:
        ConfigError: It has another type; a Boolean is no number here.
    """
    legal = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "list": isinstance(value, list | tuple) and all(isinstance(item, str) for item in value),
    }[kind]
    if not legal:
        raise ConfigError(key, f"config {key}={value!r}: expected {_WORDS[kind]}", value=value)
    if kind == "float":
        return float(value)
    return tuple(value) if kind == "list" else value


def check_number(key: str, value: float, least: float, most: float = math.inf) -> None:
    """Refuse a number outside a range, or one that is none.

    Raises:
        ConfigError: Names the range.
    """
    if not least <= value <= most or math.isinf(value):
        words = f"{least} or more" if math.isinf(most) else f"{least} to {most}"
        raise ConfigError(key, f"config {key}={value}: expected {words}", value=value)


def read_labels(data: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return ``id2label`` as labels in order, or ``None`` when there is none.

    Raises:
        ConfigError: Its keys are not the whole numbers from 0 on, or a label is no text.
    """
    stored = data.get("id2label")
    if stored is None:
        return None
    if not isinstance(stored, Mapping):
        raise ConfigError(
            "id2label", f"config id2label={stored!r}: expected an object", value=stored
        )
    try:
        by_id = {int(key): label for key, label in stored.items()}
    except ValueError:
        by_id = {}
    if sorted(by_id) != list(range(len(stored))) or len(by_id) != len(stored):
        raise ConfigError(
            "id2label",
            f"config id2label: keys are {', '.join(map(str, stored))}; expected 0 to "
            f"{len(stored) - 1}",
            value=stored,
        )
    return tuple(read_value("id2label", by_id[index], "str") for index in range(len(by_id)))
