"""Schemas of programs that already have a parser of argparse or typer."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

from flodl_cli.args.declare import shape_of
from flodl_cli.args.schema import (
    RESERVED_LETTERS,
    RESERVED_NAMES,
    Option,
    Positional,
    Schema,
    check_schema,
    schema_to_json,
)

_NAMES: dict[object, str] = {int: "int", float: "float", str: "string"}


def schema_from_argparse(parser: argparse.ArgumentParser) -> Schema:
    """What a parser of argparse takes; options that fdl has itself are left out.

    Raises:
        SchemaError: The parser takes what a schema cannot say.
    """
    options: list[Option] = []
    args: list[Positional] = []
    commands: dict[str, Schema] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            commands = {name: schema_from_argparse(each) for name, each in action.choices.items()}
        elif action.option_strings:
            option = _argparse_option(action)
            if option is not None:
                options.append(option)
        else:
            args.append(_argparse_positional(action))
    return check_schema(
        Schema(parser.description or "", True, tuple(args), tuple(options), commands)
    )


def add_fdl_schema(parser: argparse.ArgumentParser) -> None:
    """Give a parser of argparse the option ``--fdl-schema``, which prints its schema and ends."""

    class Answer(argparse.Action):
        def __call__(self, *_args: Any) -> None:
            sys.stdout.write(json.dumps(schema_to_json(schema_from_argparse(parser))) + "\n")
            parser.exit(0)

    parser.add_argument("--fdl-schema", action=Answer, nargs=0, help=argparse.SUPPRESS)


def schema_from_typer(app: Any) -> Schema:
    """What an app of typer takes; options that fdl has itself are left out.

    Raises:
        SchemaError: The app takes what a schema cannot say.
    """
    import typer

    return check_schema(_typer_schema(typer.main.get_command(app)))


def _argparse_option(action: argparse.Action) -> Option | None:
    longs = [each[2:] for each in action.option_strings if each.startswith("--")]
    if not longs or longs[0] in RESERVED_NAMES:
        return None
    switch = action.nargs == 0
    return Option(
        name=longs[0],
        type="bool" if switch else _argparse_type(action),
        short=_letter(action.option_strings),
        description=action.help or "",
        default=None if action.default == argparse.SUPPRESS or switch else action.default,
        choices=tuple(action.choices or ()),
        bare=action.const if action.nargs == "?" else None,
    )


def _argparse_positional(action: argparse.Action) -> Positional:
    variadic = action.nargs in ("*", "+")
    return Positional(
        name=action.dest,
        type=_argparse_type(action),
        description=action.help or "",
        required=action.nargs not in ("?", "*"),
        variadic=variadic,
        default=action.default,
        choices=tuple(action.choices or ()),
    )


def _argparse_type(action: argparse.Action) -> str:
    name = _NAMES.get(action.type, "string")
    is_list = action.nargs in ("*", "+") or isinstance(action.nargs, int)
    return f"list[{name}]" if is_list or type(action).__name__ == "_AppendAction" else name


def _letter(spellings: Sequence[str]) -> str | None:
    short = [each[1] for each in spellings if len(each) == 2 and each[1] not in RESERVED_LETTERS]
    return short[0] if short else None


def _typer_schema(command: Any) -> Schema:
    options: list[Option] = []
    args: list[Positional] = []
    for param in command.params:
        if not param.expose_value:  # typer's own, such as --install-completion
            continue
        shape = shape_of(param.name, param.type_descriptor.annotation)
        if param.param_type_name == "argument":
            args.append(
                Positional(
                    name=param.name,
                    type=shape.kind,
                    description=param.help or "",
                    required=param.required,
                    variadic=param.nargs == -1,
                    choices=shape.choices,
                )
            )
            continue
        name = next((each[2:] for each in param.opts if each.startswith("--")), None)
        if name is not None and name not in RESERVED_NAMES:
            options.append(
                Option(
                    name=name,
                    type=shape.kind,
                    short=_letter(param.opts),
                    description=param.help or "",
                    default=_typer_default(param, shape.kind),
                    choices=shape.choices,
                    env=param.envvar if isinstance(param.envvar, str) else None,
                )
            )
    nested = getattr(command, "commands", {})
    commands = {name: _typer_schema(each) for name, each in nested.items()}
    return Schema(_first_line(command.help), True, tuple(args), tuple(options), commands)


def _typer_default(param: Any, kind: str) -> Any:
    if callable(param.default) or kind == "bool":
        return None
    return param.default.value if isinstance(param.default, Enum) else param.default


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
