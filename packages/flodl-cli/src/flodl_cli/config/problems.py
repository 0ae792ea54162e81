"""Says in a manifest's own terms what the model found wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from flodl_cli.config.load import Document, KeyPath, spell
from flodl_cli.config.model import (
    CommandSpec,
    DdpBlock,
    Manifest,
    OutputBlock,
    SpeedHint,
    TrainingBlock,
)
from flodl_cli.errors import ConfigError
from flodl_cli.names import near

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
}
_BLOCKS: dict[str, type[BaseModel]] = {
    "ddp": DdpBlock,
    "training": TrainingBlock,
    "output": OutputBlock,
    "speed_hint": SpeedHint,
}


def problems(document: Document, error: ValidationError) -> list[ConfigError]:
    """Every fault as an error with file, line and key path, in the order of the lines."""
    return sorted(_problems(document, error), key=lambda each: each.line or 0)


def _problems(document: Document, error: ValidationError) -> Iterator[ConfigError]:
    # A value that fits no member of a union is reported once per member: gather by place.
    settled: set[KeyPath] = set()
    wrong_kind: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        path = _path(document.data, detail["loc"])
        if detail["type"] in _KINDS or detail["type"] == "literal_error":
            wrong_kind.setdefault(path, []).append(detail)
        elif detail["type"] == "extra_forbidden":
            yield _unknown_key(document, path)
        else:
            settled.add(path)
            yield document.error(path, _sentence(detail))
    for path, details in wrong_kind.items():
        if path not in settled and not any(
            other[: len(path)] == path for other in wrong_kind if other != path
        ):
            yield _wrong_kind(document, path, details)


def _path(data: object, location: Iterable[str | int]) -> KeyPath:
    """The part of pydantic's location that is keys of the data, not names of types."""
    path: list[str | int] = []
    for key in location:
        try:
            data = data[key]  # type: ignore[index]  # whatever it is, it has the key or not
        except (KeyError, IndexError, TypeError):
            continue
        path.append(key)
    return tuple(path)


def _unknown_key(document: Document, path: KeyPath) -> ConfigError:
    key = str(path[-1])
    fields = _model_at(path[:-1]).model_fields
    legal = [field.alias or name for name, field in fields.items()]
    close = near(key, legal)
    return document.error(
        path,
        f"unknown key {key!r}; keys here: {', '.join(legal)}",
        hint=f"did you mean {' or '.join(close)}?" if close else None,
    )


def _model_at(path: KeyPath) -> type[BaseModel]:
    if not path:
        return Manifest
    if path[0] == "commands" and len(path) == 2:
        return CommandSpec
    return _BLOCKS[str(path[-1])]


def _wrong_kind(document: Document, path: KeyPath, details: list[ErrorDetails]) -> ConfigError:
    value: Any = details[0]["input"]
    kinds = [_KINDS.get(each["type"]) or each["ctx"]["expected"] for each in details]
    message = f"must be {' or '.join(dict.fromkeys(kinds))}, not {spell(value)}"
    hint = None
    if details[0]["type"] == "model_type" and isinstance(value, str) and path[0] == "commands":
        hint = f"write it as a run command: {path[-1]}: {{ run: {value!r} }}"
    elif kinds == ["text"] and isinstance(value, bool | int | float):
        hint = f'quote it: "{spell(value)}"'
    return document.error(path, message, hint=hint)


def _sentence(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "value_error":
            return str(detail["ctx"]["error"])
        case "string_too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return f"must have the form package.module:Class, not {spell(detail['input'])}"
        case "missing":
            return f"the key {detail['loc'][-1]!r} is missing"
        case _:
            return (
                detail["msg"]
                .replace("Input should be", "must be", 1)
                .replace("String should", "must", 1)
                + f", not {spell(detail['input'])}"
            )
