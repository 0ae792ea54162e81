"""What a program takes on its command line, as data: checked once, written and read as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flodl_cli.errors import SchemaError

SCALARS = ("string", "int", "float", "bool", "path")
LISTS = tuple(f"list[{name}]" for name in SCALARS if name != "bool")
TYPES = (*SCALARS, *LISTS)
RESERVED_NAMES = (
    "help", "version", "quiet", "env", "gpus", "ansi", "no-ansi", "no-append", "no-prebuild",
    "explain", "fdl-schema", "refresh-schema",
)  # fmt: skip
RESERVED_LETTERS = ("h", "V", "q", "v")


class Option(NamedTuple):
    """One ``--name``; ``bare`` is the value of the option when it is given without one."""

    name: str
    type: str = "string"
    short: str | None = None
    description: str = ""
    default: Any = None
    choices: tuple[Any, ...] = ()
    env: str | None = None
    completer: str | None = None
    bare: Any = None


class Positional(NamedTuple):
    """One argument without a name; a variadic one takes all that are left."""

    name: str
    type: str = "string"
    description: str = ""
    required: bool = True
    variadic: bool = False
    default: Any = None
    choices: tuple[Any, ...] = ()
    completer: str | None = None


class Schema(NamedTuple):
    """All that a program takes; ``strict`` refuses options that it does not declare."""

    description: str = ""
    strict: bool = False
    args: tuple[Positional, ...] = ()
    options: tuple[Option, ...] = ()
    commands: Mapping[str, Schema] = {}

    def option(self, name: str) -> Option | None:
        """The option ``--name``."""
        return next((each for each in self.options if each.name == name), None)

    def letter(self, letter: str) -> Option | None:
        """The option ``-letter``."""
        return next((each for each in self.options if each.short == letter), None)


def check_schema(schema: Schema) -> Schema:
    """The schema itself, if a command line can be read by it.

    Raises:
        SchemaError: It contradicts itself; the message names the field.
    """
    _check_options(schema.options)
    _check_positionals(schema.args)
    for name, command in schema.commands.items():
        try:
            check_schema(command)
        except SchemaError as error:
            raise SchemaError(f"command {name}: {error.message}", hint=error.hint) from error
    return schema


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """The schema as plain data, in the form that ``--fdl-schema`` prints."""
    plain: dict[str, Any] = {
        "description": schema.description,
        "strict": schema.strict,
        "args": [_plain(each._asdict()) for each in schema.args],
        "options": {
            each.name: _plain({k: v for k, v in each._asdict().items() if k != "name"})
            for each in schema.options
        },
    }
    if schema.commands:
        plain["commands"] = {name: schema_to_json(each) for name, each in schema.commands.items()}
    return plain


def schema_from_json(data: object) -> Schema:
    """The schema that ``data`` describes.

    Raises:
        SchemaError: It describes none; the message names the field.
    """
    if not isinstance(data, Mapping):
        raise SchemaError("a schema is a map", hint="see flodl_cli.args for a way to get one")
    unknown = set(data) - set(Schema._fields)
    if unknown:
        raise SchemaError(
            f"unknown key {min(unknown)!r}; keys of a schema: {', '.join(Schema._fields)}"
        )
    options, args = data.get("options", {}), data.get("args", [])
    commands = data.get("commands", {})
    if not (isinstance(options, Mapping) and isinstance(args, list)):
        raise SchemaError("options must be a map, and args a list")
    if not isinstance(commands, Mapping):
        raise SchemaError("commands must be a map")
    return check_schema(
        Schema(
            description=str(data.get("description") or ""),
            strict=bool(data.get("strict", False)),
            args=tuple(_entry(Positional, each, "args") for each in args),
            options=tuple(
                _entry(Option, {"name": name, **(each or {})}, f"options.{name}")
                for name, each in options.items()
            ),
            commands={str(name): schema_from_json(each) for name, each in commands.items()},
        )
    )


def _entry(kind: Any, data: object, place: str) -> Any:
    if not isinstance(data, Mapping) or "name" not in data:
        raise SchemaError(f"{place}: an entry is a map with a name")
    unknown = set(data) - set(kind._fields)
    if unknown:
        raise SchemaError(
            f"{place}: unknown key {min(unknown)!r}; keys here: {', '.join(kind._fields)}"
        )
    return kind(**{**data, "choices": tuple(data.get("choices") or ())})


def _check_options(options: Sequence[Option]) -> None:
    names: set[str] = set()
    letters: set[str] = set()
    for each in options:
        _check_type(each.name, each.type, each.default, each.choices)
        if each.name in RESERVED_NAMES:
            raise SchemaError(f"{each.name}: fdl has an option --{each.name} of its own")
        if each.name in names:
            raise SchemaError(f"{each.name}: there are two options --{each.name}")
        names.add(each.name)
        if each.short is None:
            continue
        if len(each.short) != 1 or not (each.short.isascii() and each.short.isalpha()):
            raise SchemaError(f"{each.name}: short {each.short!r} is not one ASCII letter")
        if each.short in RESERVED_LETTERS:
            raise SchemaError(f"{each.name}: fdl has an option -{each.short} of its own")
        if each.short in letters:
            raise SchemaError(f"{each.name}: there are two options -{each.short}")
        letters.add(each.short)


def _check_positionals(args: Sequence[Positional]) -> None:
    optional: str | None = None
    names: set[str] = set()
    for index, each in enumerate(args):
        _check_type(each.name, each.type, each.default, each.choices)
        if each.name in names:
            raise SchemaError(f"{each.name}: there are two arguments of this name")
        names.add(each.name)
        if each.variadic and index < len(args) - 1:
            raise SchemaError(f"{each.name}: only the last argument can be variadic")
        if each.required and each.default is not None:
            raise SchemaError(f"{each.name}: a required argument needs no default")
        if each.required and optional is not None:
            raise SchemaError(f"{each.name}: a required argument cannot follow {optional}")
        if not each.required:
            optional = each.name


def _check_type(name: str, kind: str, default: Any, choices: Sequence[Any]) -> None:
    if kind not in TYPES:
        raise SchemaError(f"{name}: unknown type {kind!r}; types: {', '.join(TYPES)}")
    values = default if isinstance(default, list | tuple) else [default]
    wrong = [each for each in values if each is not None and choices and each not in choices]
    if wrong:
        legal = ", ".join(str(each) for each in choices)
        raise SchemaError(f"{name}: the default {wrong[0]!r} is none of the choices: {legal}")


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _value(each) for key, each in data.items()}


def _value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)
