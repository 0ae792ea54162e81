"""Which overlay a call is made with, and what is left of its words."""

from __future__ import annotations

from collections.abc import Mapping

from flodl_cli.config.overlay import has_overlay, require_overlay
from flodl_cli.config.project import open_project
from flodl_cli.context.flags import CommandLine
from flodl_cli.errors import UsageError
from flodl_cli.names import BUILTIN_COMMANDS
from flodl_cli.terminal import Terminal
from flodl_sys import names as variables


def select_overlay(
    line: CommandLine, directory: str, environ: Mapping[str, str], terminal: Terminal
) -> tuple[CommandLine, str | None]:
    """The overlay by flag, by variable, or by first word, which then is no command word.

    A first word that is also a command stays that command, and a note says how to write both.

    Raises:
        OverlayError: The flag or the variable names one that is not there.
        UsageError: The first word is both, and ``$FDL_STRICT_ENV`` forbids that.
        ConfigError, ConfigErrors: The manifest is at fault.
    """
    if line.flags.overlay is not None:
        at = next((word for word in line.given if word.startswith("@")), "--env")
        require_overlay(directory, line.flags.overlay, at)
        return line, line.flags.overlay
    named = environ.get(variables.ENV.name)
    if named:
        require_overlay(directory, named, f"${variables.ENV.name}")
        return line, named
    first = line.words[0] if line.words else None
    if first is None or first in BUILTIN_COMMANDS or not has_overlay(directory, first):
        return line, None
    root = open_project(directory)
    if root is None or first not in root.commands:
        return line._replace(words=line.words[1:]), first
    _tell_collision(first, environ, terminal)
    return line, None


def _tell_collision(name: str, environ: Mapping[str, str], terminal: Terminal) -> None:
    if environ.get(variables.STRICT_ENV.name) == "1":
        raise UsageError(
            f"{name!r} is a command and an overlay, and ${variables.STRICT_ENV.name} is set",
            hint=f"rename one of them, or write `fdl @{name} COMMAND` for the overlay",
        )
    terminal.note(
        f"{name!r} is a command and an overlay: this runs the command; "
        f"`fdl @{name} {name}` runs it with the overlay, `fdl @{name} COMMAND` another one"
    )
