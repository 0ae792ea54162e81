"""From a dataclass to a schema: the types of its fields say what the options take."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from flodl_cli.args.schema import Option, Positional, Schema, check_schema
from flodl_cli.errors import SchemaError

_NAMES: dict[object, str] = {str: "string", int: "int", float: "float", bool: "bool", Path: "path"}


class _Mark(NamedTuple):
    """What `option` or `arg` says about a field, beyond its type and default."""

    is_option: bool
    short: str | None = None
    help: str = ""
    choices: Sequence[Any] = ()
    env: str | None = None
    completer: str | None = None
    bare: Any = None


class Shape(NamedTuple):
    """The type of a field taken apart; ``enum`` turns a choice back into a member."""

    kind: str
    is_optional: bool
    choices: tuple[Any, ...]
    enum: type[Enum] | None


def option(
    *,
    short: str | None = None,
    help: str = "",  # noqa: A002 - what every parser calls it
    choices: Sequence[Any] = (),
    env: str | None = None,
    completer: str | None = None,
    bare: Any = None,
) -> Any:
    """Say more about a field that is an option; it stands in its ``Annotated`` type.

    ``env`` is a variable that stands in for the option, ``bare`` its value when it is given
    without one, ``completer`` a shell command that lists values.
    """
    return _Mark(True, short, help, choices, env, completer, bare)


def arg(
    *,
    help: str = "",  # noqa: A002 - what every parser calls it
    choices: Sequence[Any] = (),
    completer: str | None = None,
) -> Any:
    """Make a field an argument without a name; one that is a list takes all that are left."""
    return _Mark(False, help=help, choices=choices, completer=completer)


def schema_of(cls: type) -> Schema:
    """The schema of a dataclass.

    Raises:
        SchemaError: A field cannot be an option or argument; the message names it.
    """
    if not dataclasses.is_dataclass(cls):
        raise SchemaError(f"{cls.__name__} is no dataclass", hint="decorate it with @dataclass")
    options: list[Option] = []
    args: list[Positional] = []
    hints = get_type_hints(cls, include_extras=True)
    for each in dataclasses.fields(cls):
        if not each.init:
            continue
        mark, shape = mark_of(hints[each.name]), shape_of(each.name, hints[each.name])
        if mark.is_option:
            options.append(_option(each, mark, shape))
        else:
            args.append(_positional(each, mark, shape))
    return check_schema(
        Schema(
            description=_first_line(cls.__doc__ or "", cls.__name__),
            strict=True,
            args=tuple(args),
            options=tuple(options),
        )
    )


def mark_of(hint: Any) -> _Mark:
    """What a field says about itself."""
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, _Mark):
                return extra
    return _Mark(is_option=True)


def shape_of(name: str, hint: Any) -> Shape:
    """The type of a field.

    Raises:
        SchemaError: A command line cannot hold values of that type.
    """
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    is_optional = False
    if get_origin(hint) in (Union, types.UnionType):
        members = [each for each in get_args(hint) if each is not type(None)]
        is_optional = len(members) < len(get_args(hint))
        if len(members) != 1:
            raise _no_type(name, hint)
        hint = members[0]
    if get_origin(hint) is list:
        item = shape_of(name, get_args(hint)[0])
        return item._replace(kind=f"list[{item.kind}]", is_optional=is_optional)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return Shape(_NAMES.get(type(choices[0]), "string"), is_optional, choices, None)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Shape("string", is_optional, tuple(str(each.value) for each in hint), hint)
    if hint not in _NAMES:
        raise _no_type(name, hint)
    return Shape(_NAMES[hint], is_optional, (), None)


def flag_name(field: str) -> str:
    """``batch_size`` as ``batch-size``."""
    return field.replace("_", "-")


def _option(each: dataclasses.Field[Any], mark: _Mark, shape: Shape) -> Option:
    default = _default(each)
    if default is dataclasses.MISSING and not shape.is_optional and shape.kind != "bool":
        raise SchemaError(
            f"{each.name}: an option needs a default",
            hint="give it one, make it `T | None = None`, or an argument with arg()",
        )
    if shape.kind == "bool" and default is True:
        raise SchemaError(
            f"{each.name}: a switch can only turn something on",
            hint=f"name it no_{each.name}, with False as its default",
        )
    return Option(
        name=flag_name(each.name),
        type=shape.kind,
        short=mark.short,
        description=mark.help,
        default=_plain(None if default is dataclasses.MISSING else default),
        choices=tuple(mark.choices) or shape.choices,
        env=mark.env,
        completer=mark.completer,
        bare=mark.bare,
    )


def _positional(each: dataclasses.Field[Any], mark: _Mark, shape: Shape) -> Positional:
    default = _default(each)
    required = default is dataclasses.MISSING and not shape.is_optional
    return Positional(
        name=flag_name(each.name),
        type=shape.kind,
        description=mark.help,
        required=required,
        variadic=shape.kind.startswith("list["),
        default=None if required else _plain(default) or None,
        choices=tuple(mark.choices) or shape.choices,
        completer=mark.completer,
    )


def _default(each: dataclasses.Field[Any]) -> Any:
    if each.default_factory is not dataclasses.MISSING:
        return each.default_factory()
    return each.default


def _plain(value: Any) -> Any:
    if value is dataclasses.MISSING:
        return None
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value.value) if isinstance(value, Enum) else value


def _no_type(name: str, hint: Any) -> SchemaError:
    return SchemaError(
        f"{name}: a command line cannot hold {getattr(hint, '__name__', hint)}",
        hint="use str, int, float, bool, Path, Literal, an Enum, lists of them, or T | None",
    )


def _first_line(doc: str, name: str) -> str:
    # A dataclass without a docstring is given its own signature as one.
    first = doc.strip().partition("\n")[0]
    return "" if first.startswith(f"{name}(") else first
