"""Walks the words of a command line down the command tree. Pure: nothing is read or run here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from flodl_cli.config.tree import Command, Level, PathCommand, Preset, Program, RunCommand
from flodl_cli.context.flags import CommandLine
from flodl_cli.errors import ConfigErrors, UsageError
from flodl_cli.names import BUILTIN_COMMANDS, near
from flodl_cli.terminal import listed


class RunScript(NamedTuple):
    """Run a shell line, with the user's words added to it; ``files`` are the manifests passed."""

    command: RunCommand
    tail: tuple[str, ...]
    files: tuple[str, ...]


class RunEntry(NamedTuple):
    """Run an entry with the user's words after its own; ``files`` are the manifests passed."""

    program: Program
    words: tuple[str, ...]
    files: tuple[str, ...]


class ShowHelp(NamedTuple):
    """Show the help of what the words lead to; ``trail`` are the words that lead there."""

    trail: tuple[str, ...]
    target: Level | RunCommand | Preset


Outcome: TypeAlias = RunScript | RunEntry | ShowHelp


def walk(root: Level, line: CommandLine) -> Outcome:
    """What ``line``, which has at least one word, asks of the tree.

    Raises:
        UsageError: The words lead to no command, or to one that takes none of the rest.
        ConfigErrors: They lead to a manifest that has problems.
    """
    levels, target, depth = descend(root, line.words)
    trail, rest = line.words[:depth], line.words[depth:]
    files = tuple(file for level in levels for file in level.layers)
    if target is None:
        raise unknown_command(rest[0], trail, (*BUILTIN_COMMANDS, *root.commands))
    if line.flags.help:
        shown = levels[-1] if isinstance(target, PathCommand) else target
        return ShowHelp(trail=trail, target=shown)
    match target:
        case RunCommand():
            if rest:
                raise _stray_words(line, trail, rest)
            return RunScript(command=target, tail=line.tail or (), files=files)
        case Preset(program=program):
            return RunEntry(program=program, words=(*rest, *(line.tail or ())), files=files)
        case PathCommand():
            return _enter(levels[-1], line, trail, rest, files)


def descend(root: Level, words: Sequence[str]) -> tuple[list[Level], Command | None, int]:
    """The levels that ``words`` pass, the command they end at, and how many of them lead there.

    Raises:
        ConfigErrors: They lead to a manifest that has problems.
    """
    levels = [root]
    target: Command | None = None
    depth = 0
    for word in words:
        found = levels[-1].commands.get(word)
        if found is None:
            break
        depth += 1
        target = found
        if not isinstance(found, PathCommand):
            break
        levels.append(_below(found))
    return levels, target, depth


def unknown_command(
    word: str, trail: Sequence[str], commands: Sequence[str], *, hint: str | None = None
) -> UsageError:
    """The error for a word that leads to no command."""
    where = f" in {' '.join(trail)}" if trail else ""
    if word.startswith("-"):
        return UsageError(
            f"unknown option {word!r}{where}",
            hint="options of a command stand after its name; `fdl --help` lists those of fdl",
        )
    close = near(word, commands)
    meant = f"did you mean {' or '.join(close)}?" if close else hint
    return UsageError(f"unknown command {word!r}{where}; commands: {listed(commands)}", hint=meant)


def _below(command: PathCommand) -> Level:
    if command.level is None:
        raise ConfigErrors(command.problems)
    return command.level


def _enter(
    level: Level,
    line: CommandLine,
    trail: tuple[str, ...],
    rest: tuple[str, ...],
    files: tuple[str, ...],
) -> Outcome:
    if level.program is not None:
        words = (*rest, *(line.tail or ()))
        return RunEntry(program=level.program, words=words, files=files)
    if rest:
        raise unknown_command(rest[0], trail, tuple(level.commands))
    if line.tail:
        raise UsageError(
            f"{' '.join(trail)} has no entry that could take {shlex.join(line.tail)}",
            hint=f"commands of {' '.join(trail)}: {listed(level.commands)}",
        )
    return ShowHelp(trail=trail, target=level)


def _stray_words(line: CommandLine, trail: Sequence[str], rest: Sequence[str]) -> UsageError:
    corrected = ["fdl", *line.given, *trail, "--", *rest, *(line.tail or ())]
    return UsageError(
        f"{' '.join(trail)} takes no words before --, and got {shlex.join(rest)}",
        hint=f"write: {shlex.join(corrected)}",
    )
