"""How the processes of a run come to the user's code: by running the program, or by pickle."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from types import ModuleType

from flodl.core.errors import LaunchError
from flodl.distributed.hostd.command import Command, CommandKind
from flodl.distributed.launch.decision import LaunchChoice

_MULTIPROCESSING = "--multiprocessing-fork"


def program(
    launch: LaunchChoice,
    *,
    orig_argv: Sequence[str] | None = None,
    main: ModuleType | None = None,
) -> Command | None:
    """Return the program to run again, or ``None`` where the objects are to be pickled instead.

    Args:
        launch: What was asked for; ``"thread"`` needs neither.
        orig_argv: Command line of this process.
        main: Its main module.

    Raises:
        LaunchError: ``"script"`` was asked for, and there is no program to run again.
    """
    if launch in {"spawn", "thread"}:
        return None
    orig_argv = sys.orig_argv if orig_argv is None else orig_argv
    main = sys.modules.get("__main__") if main is None else main
    obstacle = _obstacle(orig_argv, main)
    if obstacle is None:
        return Command.parse(orig_argv)
    if launch == "auto":
        return None
    raise LaunchError(
        f"launch='script': {obstacle}, so there is no program to run again",
        hint="put the code into a file, or use launch='spawn'",
    )


def _obstacle(orig_argv: Sequence[str], main: ModuleType | None) -> str | None:
    command = Command.parse(orig_argv)
    if hasattr(builtins, "__IPYTHON__"):
        return "this is a notebook or an IPython prompt"
    if hasattr(sys, "ps1"):
        return "this is a prompt"
    if command is None:
        return "the program came by standard input"
    if _MULTIPROCESSING in command.args:
        return "this process was started by multiprocessing"
    if command.kind is not CommandKind.CODE and getattr(main, "__file__", None) is None:
        return "the main module has no file"
    return None
