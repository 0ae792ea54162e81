"""Checks the words for an entry against its schema before the entry is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flodl_cli.args.parser import check_words, convert
from flodl_cli.args.schema import Schema
from flodl_cli.config.tree import Program
from flodl_cli.errors import UsageError
from flodl_cli.names import near


def check_arguments(schema: Schema, program: Program, words: Sequence[str]) -> None:
    """Stop a call whose words, pinned arguments or preset options do not fit the schema.

    Values are checked always, unknown options only by a strict schema. Flags that fdl makes from
    the other blocks of a manifest are not checked.

    Raises:
        UsageError: They do not fit.
    """
    command = schema
    rest = list(words)
    if schema.commands and rest and rest[0] in schema.commands:
        command = schema.commands[rest.pop(0)]
    check_words(command, [*program.args, *rest])
    for key, text in program.settings.items():
        block, _, name = key.partition(".")
        if block == "options":
            _check_preset(command, name, text)


def without_variables(
    flags: Sequence[str], schema: Schema, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The flags without those of options whose own environment variable is set."""
    named = {f"--{each.name}" for each in schema.options if each.env and environ.get(each.env)}
    kept: list[str] = []
    dropping = False
    for word in flags:
        if word.startswith("--"):
            dropping = word in named
        if not dropping:
            kept.append(word)
    return tuple(kept)


def _check_preset(schema: Schema, name: str, text: str) -> None:
    option = schema.option(name)
    if option is None:
        if schema.strict:
            close = near(name, [each.name for each in schema.options])
            raise UsageError(
                f"options.{name}: the program has no option --{name}",
                hint=f"did you mean {' or '.join(close)}?" if close else None,
            )
        return
    if option.type != "bool":
        convert(option, f"options.{name}:", text)
