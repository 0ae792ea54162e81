"""Turns frozen dataclasses into plain values and back, checked by their annotations.

Fields that the class does not know are ignored, so that a newer peer may say more; a field that
is missing takes its default; a value of the wrong type is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from flodl.distributed.protocol.errors import FrameError
from flodl.distributed.protocol.values import Plain

T = TypeVar("T")
Reader = Callable[[Any], Any]
Writer = Callable[[Any], Any]

MAX_DEPTH = 32


def write(value: object) -> dict[str, Plain]:
    """Return a dataclass as a map of plain values."""
    kind: Any = type(value)
    return typing.cast("dict[str, Plain]", _writer(kind)(value))


def read(kind: type[T], body: object) -> T:
    """Return the dataclass that a map of plain values stands for.

    Raises:
        FrameError: A field is missing or has a value of the wrong type.
    """
    reader: Reader = _reader(typing.cast("Any", kind))
    return typing.cast("T", reader(body))


def require_plain(value: object, depth: int = 0) -> None:
    """Check that a value holds nothing but plain values.

    Raises:
        FrameError: It does, or is nested deeper than anything we send.
    """
    if depth > MAX_DEPTH:
        raise FrameError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, list | tuple):
        for item in value:
            require_plain(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise FrameError(f"map key {key!r}: must be text")
            require_plain(item, depth + 1)
    elif not (value is None or isinstance(value, bool | int | float | str | bytes)):
        raise FrameError(f"{type(value).__name__}: not a plain value")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    # ``Plain`` refers to itself, which cannot be evaluated; ``object`` stands for it here.
    return typing.get_type_hints(kind, localns={"Plain": object})


@functools.cache
def _writer(kind: type) -> Writer:
    if not dataclasses.is_dataclass(kind):
        return _write_plain
    names = tuple(field.name for field in dataclasses.fields(kind))

    def write_fields(value: Any) -> dict[str, Any]:
        return {name: _write_plain(getattr(value, name)) for name in names}

    return write_fields


def _write_plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_write_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return _writer(value.__class__)(value)
    return value


@functools.cache
def _reader(kind: Any) -> Reader:
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(kind)
    make = _MAKERS.get(get_origin(kind))
    return _SCALARS[kind] if make is None else make(get_args(kind))


def _dataclass_reader(kind: Any) -> Reader:
    fields = dataclasses.fields(kind)
    required = {
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    hints = {field.name: _hints(kind)[field.name] for field in fields}

    def read_fields(body: Any) -> Any:
        if not isinstance(body, dict):
            raise FrameError(f"{kind.__name__}: expected a map, not {type(body).__name__}")
        missing = required - body.keys()
        if missing:
            raise FrameError(f"{kind.__name__}: no {', '.join(sorted(missing))}")
        try:
            return kind(
                **{name: _reader(hint)(body[name]) for name, hint in hints.items() if name in body}
            )
        except FrameError as error:
            raise FrameError(f"{kind.__name__}.{error.message}") from error

    return read_fields


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _reader(arguments[0])
        return lambda value: tuple(map(item, _list(value)))
    readers = tuple(map(_reader, arguments))

    def read_items(value: Any) -> Any:
        items = _list(value)
        if len(items) != len(readers):
            raise FrameError(f"expected {len(readers)} items, not {len(items)}")
        return tuple(reader(item) for reader, item in zip(readers, items, strict=True))

    return read_items


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FrameError(f"expected a list, not {type(value).__name__}")
    return value


def _dict_reader(arguments: tuple[Any, ...]) -> Reader:
    item = _reader(arguments[1])

    def read_items(value: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise FrameError(f"expected a map with text keys, not {type(value).__name__}")
        return {key: item(entry) for key, entry in value.items()}

    return read_items


def _literal_reader(legal: tuple[Any, ...]) -> Reader:
    def read_literal(value: Any) -> Any:
        if not isinstance(value, str) or value not in legal:
            raise FrameError(f"{value!r}: expected one of {', '.join(map(repr, legal))}")
        return value

    return read_literal


def _optional_reader(arguments: tuple[Any, ...]) -> Reader:
    (item,) = (_reader(argument) for argument in arguments if argument is not types.NoneType)
    return lambda value: None if value is None else item(value)


def _read_plain(value: Any) -> Any:
    require_plain(value)
    return value


def _scalar_reader(kind: type, *also: type) -> Reader:
    accepted = (kind, *also)

    def read_scalar(value: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise FrameError(f"{value!r}: expected {kind.__name__}")
        return kind(value)

    return read_scalar


_SCALARS: dict[Any, Reader] = {
    bool: _scalar_reader(bool),
    int: _scalar_reader(int),
    float: _scalar_reader(float, int),
    str: _scalar_reader(str),
    bytes: _scalar_reader(bytes),
    object: _read_plain,
}
_MAKERS: dict[Any, Callable[[tuple[Any, ...]], Reader]] = {
    tuple: _tuple_reader,
    dict: _dict_reader,
    Literal: _literal_reader,
    Union: _optional_reader,
    types.UnionType: _optional_reader,
}
