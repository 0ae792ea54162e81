"""The built-in commands as one typer object; each module loads when its command is used."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from flodl_cli.context.application import AppContext
from flodl_cli.names import BUILTIN_COMMANDS
from flodl_cli.routing.builtins import dress, misuse, refuse_unknown


class LazyGroup(TyperGroup):
    """The built-in commands by name, without loading any of their modules."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Names of all built-in commands."""
        return list(BUILTIN_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        """The command ``cmd_name``, loaded now, or ``None``."""
        return builtin(cmd_name) if cmd_name in BUILTIN_COMMANDS else None


app = typer.Typer(
    name="fdl", cls=LazyGroup, rich_markup_mode=None, add_completion=False, no_args_is_help=True
)


@app.callback()
def _root() -> None:
    """Run the commands of a project, and manage libtorch."""


def builtin(name: str) -> Any:
    """The typer command of a built-in; its class belongs to typer's private parts."""
    module = importlib.import_module(f"flodl_cli.commands.{name.replace('-', '_')}")
    command = typer.main.get_command(module.app)
    command.name = name
    command.short_help = BUILTIN_COMMANDS[name]
    return command


def run_builtin(name: str, words: Sequence[str], context: AppContext) -> int:
    """Run a built-in command and return its exit code.

    Raises:
        FdlError: The command failed, or its words make no sense.
    """
    command = builtin(name)
    dress(command, context.terminal)
    refuse_unknown(command, name, words)
    try:
        code = command.main(
            list(words),
            prog_name=f"fdl {name}",
            standalone_mode=False,
            obj=context,
            terminal_width=context.terminal.width,
            color=True,  # the paint of the terminal has decided
        )
    except typer.Abort as error:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt from error
    except typer.TyperException as error:
        raise misuse(error, name) from error
    return code if isinstance(code, int) else 0
