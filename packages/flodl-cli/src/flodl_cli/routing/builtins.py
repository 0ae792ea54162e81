"""Makes help and misuse of the built-in commands look like those of all other commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.routing.walk import unknown_command
from flodl_cli.terminal import Paint, Terminal

_HEADINGS = ("Options:", "Arguments:", "Commands:")
_ROW = re.compile(r"^  (\S.*?)(?=  |$)")
_BRACES = re.compile("[{}]")
_WORD_TYPE = re.compile(r" <(?:list\[)?str\]?>")
_SENTENCE = re.compile(r"(.+?\.)(?:\s|$)", re.DOTALL)


def dress(command: Any, terminal: Terminal) -> None:
    """Give the typer command, and all below it, whole descriptions and the terminal's colors."""
    plain_help = command.get_help
    command.get_help = lambda context: _painted(plain_help(context), terminal.paint)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
    for each in getattr(command, "commands", {}).values():
        each.short_help = _first_sentence(each.help or "")
        dress(each, terminal)


def refuse_unknown(command: Any, name: str, words: Sequence[str]) -> None:
    """Name the commands of a group when the first of ``words`` is none of them.

    Raises:
        UsageError: It is not.
    """
    commands = getattr(command, "commands", None)
    if commands and words and not words[0].startswith("-") and words[0] not in commands:
        raise unknown_command(words[0], (name,), tuple(commands))


def misuse(error: Any, name: str) -> FdlError:
    """What typer says about words that it cannot use, as an error of fdl's own."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else f"fdl {name}"
    message = error.format_message()
    hint = f"`{where} --help` lists what it takes"
    close = getattr(error, "possibilities", None)
    if close:
        message, hint = error.message, f"did you mean {' or '.join(sorted(close))}? {hint}"
    message = " ".join(message.replace("Value error, ", "", 1).rstrip(".").split())
    message = message[:1].lower() + message[1:]
    if error.exit_code == UsageError("").exit_code:
        return UsageError(message, hint=hint)
    return FdlError(message, hint=hint, exit_code=error.exit_code)


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(text)
    return " ".join((found[1] if found else text).split())


def _painted(page: str, paint: Paint) -> str:
    lines: list[str] = []
    section = ""
    for line in page.splitlines():
        if line in _HEADINGS:
            section = line
            lines.append(paint.heading(line))
        elif line.startswith("Usage:"):
            lines.append(paint.heading("Usage:") + _BRACES.sub("", line.removeprefix("Usage:")))
        elif section:
            # That an argument is a word goes without saying.
            row = _WORD_TYPE.sub(_blanks, line, count=1) if section == "Arguments:" else line
            lines.append(_ROW.sub(lambda name: f"  {paint.name(name[1])}", row.rstrip()))
        else:
            lines.append(line)
    return "\n".join(lines)


def _blanks(found: re.Match[str]) -> str:
    return " " * len(found[0])
