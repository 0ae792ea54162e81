"""What a program calls at its start: its arguments, its help, or its schema for fdl."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar, overload

from flodl_cli.args.declare import flag_name, schema_of, shape_of
from flodl_cli.args.parser import parse_words
from flodl_cli.args.schema import Schema, check_schema, schema_to_json
from flodl_cli.errors import UsageError

T = TypeVar("T")

_SCHEMA_FLAG = "--fdl-schema"


def parse(cls: type[T], words: Sequence[str], environ: Mapping[str, str] | None = None) -> T:
    """The arguments in ``words`` as an instance of the dataclass ``cls``.

    Raises:
        SchemaError: ``cls`` cannot describe a command line.
        UsageError: The words do not fit.
    """
    values = parse_words(schema_of(cls), words, os.environ if environ is None else environ)
    return _instance(cls, values)


@overload
def parse_or_schema(spec: type[T], argv: Sequence[str] | None = None) -> T: ...
@overload
def parse_or_schema(
    spec: Mapping[str, type[Any]], argv: Sequence[str] | None = None
) -> tuple[str, Any]: ...
def parse_or_schema(spec: Any, argv: Sequence[str] | None = None) -> Any:
    """The program's own arguments: an instance of a dataclass, or a command's name and one.

    Call it before anything heavy is imported. ``--fdl-schema`` and ``--help`` print and end the
    program; words that do not fit end it with code 2 and the usage on stderr.

    Args:
        spec: A dataclass, or one for each command by its name.
        argv: The words, those of the program when not given.

    Raises:
        SchemaError: ``spec`` cannot describe a command line.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    program = os.path.basename(sys.argv[0]) or "program"  # noqa: PTH119 - a name, not a path
    commands = spec if isinstance(spec, Mapping) else None
    schema = schema_of(spec) if commands is None else _of_commands(commands)
    options = words[: words.index("--")] if "--" in words else words
    if _SCHEMA_FLAG in options:
        _end(json.dumps(schema_to_json(schema)))
    if commands is None:
        return _parsed(spec, schema, program, words)
    if not words or words[0] not in commands:
        if set(options) & {"-h", "--help"}:
            _end(usage(schema, program))
        _refuse(
            f"unknown command {words[0]!r}" if words else "the command is missing", schema, program
        )
    name, *rest = words
    return name, _parsed(commands[name], schema.commands[name], f"{program} {name}", rest)


def usage(schema: Schema, program: str) -> str:
    """The help of a program."""
    slots = ["COMMAND"] if schema.commands else []
    slots += [
        f"[{each.name}]" if not each.required else each.name + ("..." if each.variadic else "")
        for each in schema.args
    ]
    lines = [f"Usage: {' '.join([program, *(['[OPTIONS]'] if schema.options else []), *slots])}"]
    if schema.description:
        lines += ["", schema.description]
    rows = [(name, each.description) for name, each in schema.commands.items()]
    rows += [(each.name, each.description) for each in schema.args]
    rows += [(_spelled(each.name, each.short, each.type), _said(each)) for each in schema.options]
    width = max((len(name) for name, _ in rows), default=0) + 2
    return "\n".join([*lines, "", *(f"  {name:{width}}{text}".rstrip() for name, text in rows)])


def _parsed(cls: type[T], schema: Schema, program: str, words: Sequence[str]) -> T:
    options = words[: words.index("--")] if "--" in words else words
    if set(options) & {"-h", "--help"}:
        _end(usage(schema, program))
    try:
        return _instance(cls, parse_words(schema, words, os.environ))
    except UsageError as error:
        _refuse(error.message, schema, program, error.hint)


def _of_commands(commands: Mapping[str, type]) -> Schema:
    schemas = {name: schema_of(cls) for name, cls in commands.items()}
    return check_schema(Schema(strict=True, commands=schemas))


def _instance(cls: type[T], values: Mapping[str, Any]) -> T:
    import dataclasses
    from typing import get_type_hints

    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, Any] = {}
    for each in dataclasses.fields(cls):  # type: ignore[arg-type]  # schema_of has made sure
        if not each.init:
            continue
        value, shape = values[flag_name(each.name)], shape_of(each.name, hints[each.name])
        if shape.enum is not None and value is not None:
            members = {str(member.value): member for member in shape.enum}
            value = [members[str(v)] for v in value] if isinstance(value, list) else members[value]
        found[each.name] = value
    return cls(**found)


def _spelled(name: str, short: str | None, kind: str) -> str:
    value = "" if kind == "bool" else f" <{kind.upper()}>"
    return (f"-{short}, " if short else "    ") + f"--{name}{value}"


def _said(option: Any) -> str:
    parts = [option.description]
    if option.default not in (None, False, []):
        parts.append(f"[default: {option.default}]")
    if option.choices:
        parts.append(f"[possible: {', '.join(str(each) for each in option.choices)}]")
    if option.env:
        parts.append(f"[env: {option.env}]")
    return " ".join(part for part in parts if part)


def _end(text: str) -> NoReturn:
    sys.stdout.write(text + "\n")
    sys.exit(0)


def _refuse(message: str, schema: Schema, program: str, hint: str | None = None) -> NoReturn:
    first = usage(schema, program).partition("\n")[0]
    sys.stderr.write(f"error: {message}\n" + (f"hint: {hint}\n" if hint else "") + f"{first}\n")
    sys.exit(2)
